"""Final answers and tool calls of an episode: short answers, empty work, useless calls."""
