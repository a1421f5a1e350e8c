"""A finished or running run, judged line by line: what is wrong, by which numbers, and what to try next."""
