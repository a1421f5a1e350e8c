"""One policy loss a file; the name of the file is its name in `actor.policy_loss.loss_mode`."""
