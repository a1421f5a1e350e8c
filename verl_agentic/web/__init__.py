"""HTTP clients, HTTP servers and HTML pages, which extensions share.

Extension: the core imports none of it. Any other extension may.
"""
