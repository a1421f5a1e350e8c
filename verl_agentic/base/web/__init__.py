"""Shared parts of HTTP clients, HTTP servers and HTML pages."""
