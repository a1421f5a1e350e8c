"""Datasets of token ids from the log of a run or an evaluation: what `verl-agentic data export` writes."""
