"""Scores that need several episodes: tournaments, self-play, hindsight, Pareto fronts."""
