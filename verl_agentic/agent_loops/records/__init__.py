"""The record of a finished episode, and what is made of it: log rows, samples, the text audit."""
