"""Checks of machine and configuration before a run, and the dry run. An extension."""
