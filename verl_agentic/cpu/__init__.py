"""Generation on a CPU or one GPU, small models and the quickstart. An extension."""
