"""SandboxFusion's contract `POST /run_code`: a server over our sandboxes, and the backend `remote`."""
