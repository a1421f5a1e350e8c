"""What a run has played and learned from, on disk: written beside training, read by every tool that looks back."""
