"""The log of a run on disk, and data files of rows. Core: imports `base`."""
