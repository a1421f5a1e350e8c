"""The command `verl-agentic`: one module per subcommand, imported only when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "doctor": "check that a run would work here, and show what the plugin registers",
    "quickstart": "train a tiny model to use a tool, on this machine, in minutes",
    "play": "put one question to a trained checkpoint and watch the episode",
    "preflight": "would this configuration train? the first prompt, what it amounts to, what is wrong with it",
    "dryrun": "one whole step of your own configuration on a CPU: is it right, and where does its gradient go",
    "diagnose": "what is wrong with a run, line by line, and what to try next",
    "env": "list environments, check one, begin a new one",
    "evaluate": "play an environment against any OpenAI-compatible server, with the loop that trains",
    "judge": "attack a judge of rewards with probes, before a policy does",
    "prepare": "write an environment's rows for verl, or check rows that there are",
    "reward": "audit a rubric on stored trajectories, or see what another one would have changed",
    "serve": "serve a model folder to OpenAI-compatible clients, on a CPU",
    "sandbox": "run untrusted code: see which sandboxes work here, use one, serve them to other machines",
    "view": "see what a run has played, token by token, in the browser or as one HTML file",
    "tiny-model": "make a tiny random model with tokenizer and chat template",
}
"""Subcommand -> one line of help; `tiny-model` lives in `cli/tiny_model.py`, and so on."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 fine, 1 the check or run failed, 2 wrong use."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="verl-agentic", description="Reinforcement learning for LLM agents, as a plugin for an unmodified verl."
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        if arguments[:1] == [name]:
            _module(name).add_arguments(subparser)
    parsed = _parse(parser, arguments)
    # Bars of other libraries would run through ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        return _module(parsed.command).run(parsed)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _report(error)


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed arguments; options may stand between overrides, where argparse ends a list of positionals."""
    parsed, rest = parser.parse_known_args(arguments)
    is_wrong = [argument for argument in rest if argument.startswith("-") or not hasattr(parsed, "overrides")]
    if is_wrong:
        parser.error(f"unrecognized arguments: {' '.join(is_wrong)}")
    if rest:
        parsed.overrides = [*parsed.overrides, *rest]
    return parsed


def _module(name: str):
    return importlib.import_module(f"verl_agentic.cli.{name.replace('-', '_')}")


def _report(error: Exception) -> int:
    from verl_agentic.errors import AgenticError

    if not isinstance(error, AgenticError):
        raise error
    is_terminal = sys.stderr.isatty()
    red, plain = ("\033[31m", "\033[0m") if is_terminal else ("", "")
    print(f"{red}{type(error).__name__}: {error}{plain}", file=sys.stderr)
    return 2
