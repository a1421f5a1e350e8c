"""Evaluation of models and environments. An extension."""
