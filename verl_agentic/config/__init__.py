"""Hydra configurations, found by `hydra.searchpath: [pkg://verl_agentic.config]`."""
