"""Verdicts on final answers: maths, short answers, reference chains. Reward components build on them."""
