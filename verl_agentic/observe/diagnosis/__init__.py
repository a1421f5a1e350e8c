"""The diagnosis of a finished or running run: one finding per line, with numbers and advice."""
