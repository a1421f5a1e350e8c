"""Isolated execution of code. An extension that other extensions may import."""
