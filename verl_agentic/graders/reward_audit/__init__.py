"""Audit and comparison of rubrics on stored trajectories."""
