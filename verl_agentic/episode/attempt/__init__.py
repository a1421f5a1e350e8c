"""One attempt at an episode: its turns, budgets, compaction and checks."""
