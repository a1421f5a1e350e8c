"""Scores of tool calls, for reward components."""
