"""Which prompts come next: pass rates, difficulty, group sizes, proposed tasks."""
