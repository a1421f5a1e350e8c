"""Verdicts on programs and patches, for reward components."""
