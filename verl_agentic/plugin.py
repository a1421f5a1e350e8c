"""Placeholder replaced by the plugin loader."""
