"""The environment with tools; tools from functions, their schemas, and the check of calls."""
