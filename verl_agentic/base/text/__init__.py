"""Reads texts: tags, reasoning, boxes, normal forms, repetition."""
