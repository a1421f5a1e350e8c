"""Evaluation of served and local models on environments."""
