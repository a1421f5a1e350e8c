"""LLM judges: prompts, verdicts, votes, caches, limits and probes."""
