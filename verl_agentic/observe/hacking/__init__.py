"""Counts attempts at reward hacking in a finished episode. Others import `count.py` only."""
