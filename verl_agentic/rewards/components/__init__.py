"""General reward components, one per file; the name of the file is its name in a rubric. Nobody imports them."""
