"""Final answers and texts of an episode: short answers, empty work, texts of turns."""
