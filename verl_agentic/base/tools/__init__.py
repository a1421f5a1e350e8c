"""Tools from functions, their schemas, and the check of calls."""
