"""verl on a CPU: platform, engines, log-probs, console, vLLM's CPU build."""
