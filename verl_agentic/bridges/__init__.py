"""Environments of other packages, one folder each. A folder's name is its id in `agentic.env`.

Importing a bridge needs no optional dependency: `make_env` and `make_rows` import it. Nothing imports a bridge; it is
loaded by its id.
"""
