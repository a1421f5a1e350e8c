"""Estimators of single papers, one per file; the name of the file is its name in `algorithm.adv_estimator`.

Nobody imports them.
"""
