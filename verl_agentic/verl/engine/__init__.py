"""verl's FSDP engines, losses and critics: `verl.workers`."""
