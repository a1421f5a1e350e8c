"""The rollout backend `agentic` and how weights reach it: `verl.workers.rollout`, `verl.checkpoint_engine`."""
