"""Ray workers that start in a moment."""
