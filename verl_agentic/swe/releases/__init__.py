"""Releases of packages: source distributions, their files, requirements and changelogs."""
