"""Gates, one a file: its name is the name in a configuration."""
