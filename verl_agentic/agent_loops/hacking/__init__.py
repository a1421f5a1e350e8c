"""Counts attempts at reward hacking in a finished episode; `count.py` is what others import."""
