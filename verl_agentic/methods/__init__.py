"""Features of single papers: estimators, losses, measures, and parts of episodes. An extension: imports the core."""
