"""What a dry run recorded and what its report shows."""
