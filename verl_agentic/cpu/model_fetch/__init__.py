"""Brings a small pretrained model onto this machine, as a Hugging Face folder."""
