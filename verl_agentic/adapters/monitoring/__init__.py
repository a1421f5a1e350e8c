"""Watches a run and never changes what is trained."""
