"""Formulas of critics, learning rates, token rewards and offline losses of single papers."""
