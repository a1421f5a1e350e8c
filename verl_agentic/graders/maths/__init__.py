"""Verdicts on answers of mathematics."""
