"""Checks that an environment is fit for training (`verl-agentic env validate`)."""
