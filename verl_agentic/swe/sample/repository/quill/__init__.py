"""Small functions for texts, intervals, amounts and durations."""
