"""Sandboxes in hardened containers of a Docker engine."""
