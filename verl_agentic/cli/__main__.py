"""Runs the command line: `python -m verl_agentic.cli` is `verl-agentic`."""

from verl_agentic.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
