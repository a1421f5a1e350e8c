"""Estimators, losses and measures of single papers, found by name. An extension: imports the core."""
