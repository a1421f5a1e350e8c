"""Clients of served models that score: judges and reward models share them."""
