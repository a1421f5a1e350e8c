"""Dynamic sampling: refill, replay and statistics of groups that gates drop or keep."""
