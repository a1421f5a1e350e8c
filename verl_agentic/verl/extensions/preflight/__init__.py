"""Checks of a run before it starts: no Ray, no GPU, no weights."""
