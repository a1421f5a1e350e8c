"""Checks of a run, the evidence that they read, and the diagnosis: one finding per line, with numbers and advice."""
