"""Offline training with verl's SFT trainer: DPO, outcome reward models, PEAR, warm starts, suggestions."""
