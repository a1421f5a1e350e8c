"""Final answers of an episode: short answers, empty work."""
