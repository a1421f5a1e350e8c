"""Tensor maths of credit and losses, without verl. Core: imports `base`."""
