"""Protocols: prompts, actions and observations of a policy. Each is a YAML file."""
