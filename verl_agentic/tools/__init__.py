"""Ready-made tools for environments: Python, repository search, retrieval, MCP.

An extension: imports the core and `sandbox`.
"""
