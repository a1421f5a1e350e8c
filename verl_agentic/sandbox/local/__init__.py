"""The backend `local`: plain child processes with resource limits and no isolation."""
