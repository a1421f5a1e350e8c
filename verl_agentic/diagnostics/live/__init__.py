"""A running job: where its time goes, what it waits for, why it failed."""
