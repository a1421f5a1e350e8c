"""Offline training with verl's SFT trainer: DPO, outcome reward models and PEAR."""
