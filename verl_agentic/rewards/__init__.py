"""Rubrics, scorer and general components. Core: imports `base` and `log`. Components of papers are in `graders`."""
