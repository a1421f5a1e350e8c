"""Reads answers of language models; similarity and clusters of texts."""
