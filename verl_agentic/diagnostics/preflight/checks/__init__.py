"""The checks: one a file, a function of a `PlannedRun` that is named like its file and returns what it found.

A new check is a new file here; nothing else has to know of it.
"""
