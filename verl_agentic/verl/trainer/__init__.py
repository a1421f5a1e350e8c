"""verl's trainers: advantages, curricula, schedules, extra columns: `verl.trainer.ppo.v1`."""
