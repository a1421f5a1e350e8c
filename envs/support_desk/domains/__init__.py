"""The domains of the desk: one file of tools each, and the data of those that can be generated."""
