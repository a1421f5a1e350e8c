"""Jobs of commands on the nodes of a Ray cluster."""
