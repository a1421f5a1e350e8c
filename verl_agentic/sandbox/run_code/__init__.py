"""SandboxFusion's contract `POST /run_code`: its languages, its requests, and the backend `remote`."""
