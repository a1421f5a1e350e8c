"""Verdicts, judges, model clients and reward components of papers. An extension: imports the core and `sandbox`."""
