"""Code that runs inside a sandbox, before and around untrusted code. Standard library only."""
