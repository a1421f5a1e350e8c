"""Reinforcement learning for LLM agents, as a plugin for an unmodified verl."""
