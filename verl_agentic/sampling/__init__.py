"""Gates that drop groups, and curricula that choose prompts. Core: imports `base`."""
