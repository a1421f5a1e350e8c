"""Lengths of episodes and bounded rewards of turns, for reward components."""
