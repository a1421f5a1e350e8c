"""Rubrics in verl's reward workers: `verl.experimental.reward_loop`."""
