"""The batch that advantage estimators see, and statistics over its groups, sessions and turns."""
