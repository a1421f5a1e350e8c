"""Probes that a dry run loads into the processes of `main_ppo`."""
