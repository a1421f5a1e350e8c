"""Formulas that policy losses and critics share."""
