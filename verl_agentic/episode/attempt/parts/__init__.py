"""The parts of an `Attempt`, each built on the one before: record, budgets, context, rows. Import `Attempt` instead."""
