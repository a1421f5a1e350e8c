"""Policies that are clients of servers, and substitutes for their tokenizers."""
