"""Duplicates within and across data files, found by keys, MinHash and shared 13-grams."""
