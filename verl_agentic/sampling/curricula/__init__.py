"""One curriculum per file; the name of the file is its name in a configuration."""
