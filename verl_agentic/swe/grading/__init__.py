"""Repositories with tests: tasks, their files on disk, and verdicts on changes."""
