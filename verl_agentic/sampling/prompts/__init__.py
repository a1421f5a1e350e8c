"""Choice of the next prompts: pass rates, difficulty, group sizes, proposed tasks."""
