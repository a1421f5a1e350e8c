"""Datasets made from episodes: demonstrations, preference pairs, outcomes, hindsight."""
