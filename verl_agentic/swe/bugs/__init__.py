"""Small tasks: a good tree with one function broken."""
