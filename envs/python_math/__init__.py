"""Arithmetic that is too large to do in one's head, with a `python` tool."""

from .env import make_env

__all__ = ["make_env"]
