"""Types, errors, settings and registries, with no task of their own.

Core: everything may import it; it imports nothing above.
"""
