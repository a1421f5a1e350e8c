"""Places in the user's code: of errors, and of installed environments."""
