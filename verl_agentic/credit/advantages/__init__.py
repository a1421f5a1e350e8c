"""One advantage estimator a file; the name of the file is its name in `algorithm.adv_estimator`."""
