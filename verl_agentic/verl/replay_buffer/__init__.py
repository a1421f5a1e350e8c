"""verl's replay buffers with gates and replay: `verl.trainer.ppo.v1.replay_buffer`."""
