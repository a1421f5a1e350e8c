"""Offline training with verl's SFT trainer: DPO and outcome reward models."""
