"""What extensions share to reach other machines: HTTP clients, HTTP servers and HTML pages.

Extension: the core imports none of it. Any other extension may.
"""
