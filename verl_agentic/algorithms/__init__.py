"""Tensor maths only: advantages, policy losses, and what they share. Needs torch; knows nothing of verl."""
