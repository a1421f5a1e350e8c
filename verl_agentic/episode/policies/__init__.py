"""Policies: the interface, and clients of servers that speak tokens or messages."""
