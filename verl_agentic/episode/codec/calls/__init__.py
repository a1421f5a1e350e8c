"""Tool calls in a turn: their formats, and values read from them."""
