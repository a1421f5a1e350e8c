"""The viewer: a local page of a run's trajectories (`verl-agentic view`)."""
