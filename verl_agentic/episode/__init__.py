"""The episode loop of training, evaluation and demonstrations.

Core: imports `base`, `rewards`, `sampling` and `log`.
"""
