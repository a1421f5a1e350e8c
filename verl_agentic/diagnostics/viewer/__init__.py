"""A local page that shows what a run has played: `verl-agentic view`."""
