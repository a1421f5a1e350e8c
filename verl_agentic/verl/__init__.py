"""The only room that imports verl and ray.

Core, but for `extensions/`: imports all rooms of the core; no other room imports it at module level.
"""
