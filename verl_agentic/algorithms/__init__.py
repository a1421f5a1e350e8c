"""Tensor maths without verl: advantages, policy losses, batch metrics."""
