"""Constraints on calls: linear temporal logic, and the choice of allowed calls by the engine."""
