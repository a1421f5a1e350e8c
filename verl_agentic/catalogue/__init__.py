"""`verl-agentic recipes`: systems, methods and names of the literature, and where each one is."""
