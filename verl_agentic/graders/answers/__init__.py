"""Verdicts on final answers: classes of equal answers, reference chains. Reward components build on them."""
