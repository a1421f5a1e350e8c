"""Rewards of single turns, subgoals and lengths, for reward components."""
