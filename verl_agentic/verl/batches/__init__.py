"""The columns of stored rows, as adapters of the trainer and the replay buffer read them."""
