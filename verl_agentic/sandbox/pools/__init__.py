"""Backends by name, pools of their sandboxes, and the server that shares a pool over HTTP."""
