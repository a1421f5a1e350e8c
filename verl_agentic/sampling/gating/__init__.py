"""Dynamic sampling: what happens to groups that gates drop or keep."""
