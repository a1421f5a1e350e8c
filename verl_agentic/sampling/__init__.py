"""Which groups are trained on, and which prompts come next. Core: imports `base`."""
