"""One attempt at an episode, built on its record, its budgets, its context and its rows. Import `Attempt`."""
