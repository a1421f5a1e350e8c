"""Variants of tests that no honest code can pass."""
