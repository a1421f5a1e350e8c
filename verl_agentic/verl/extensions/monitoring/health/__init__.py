"""What judges a run while it trains: the audit of batches, alarms, and what they do."""
