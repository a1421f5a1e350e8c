"""Clients of served scoring models, for judges and reward models."""
