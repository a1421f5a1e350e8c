"""Commands that run a model or an environment: `evaluate`, `play` and `env`."""
