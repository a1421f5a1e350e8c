"""The record of a finished episode, its log rows and samples, and the text audit."""
