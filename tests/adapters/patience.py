"""How long tests wait for a process that works."""

PATIENCE_S = 1800.0
"""A test waits for what a process does, or for its end. This limit ends a process that hangs; one that shares its cores
with many others may take ten times as long as on a free machine."""
