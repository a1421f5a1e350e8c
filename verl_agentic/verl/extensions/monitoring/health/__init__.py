"""The log of the trainer, the audit of batches, the alarms of a run, and the actions that they take."""
