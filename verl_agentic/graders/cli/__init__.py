"""Commands that judge rewards: `judge` and `reward`."""
