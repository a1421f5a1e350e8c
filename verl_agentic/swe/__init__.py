"""Tasks that fix repositories: made from releases and mutations, checked, graded, imported and exported.

An extension.
"""
