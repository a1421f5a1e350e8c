"""Sandboxes on machines of a provider: one file per provider, and what they share."""
