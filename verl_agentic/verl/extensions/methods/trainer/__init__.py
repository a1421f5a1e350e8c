"""Parts of methods in the trainer: extra columns of a batch, instructions, an order of rows."""
