"""The comparison of finished or running runs: configs, success, behaviour and cost (`verl-agentic compare`)."""
