"""Rows from published data sets: a table of their formats, and the readers of their answers and tests."""
