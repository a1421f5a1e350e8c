"""HTTP servers of this package: what they check in a request, and how they listen. All servers use both.

`request_guard` checks requests, and `guarded_server` limits connections.
"""
