"""What runs inside a sandbox, before and around untrusted code: the standard library only, no packages of the host."""
