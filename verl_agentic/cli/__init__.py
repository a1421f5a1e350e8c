"""The command `verl-agentic`: its groups and shared options.

Modules of commands lie in the extensions.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from verl_agentic.cli.command_group import sentence
from verl_agentic.cli.options.typed_options import BriefParser

GROUPS = {
    "Main path": {
        "quickstart": "train a tiny model to use a tool on this machine, in minutes",
        "env": "list, create, validate and play environments",
        "recipes": "list published systems, methods and scales, and write the config of a combination",
        "preflight": "check a config and show its first prompt, derived sizes and problems",
        "dryrun": "run one training step of a config on a CPU and check its mask by gradient",
        "view": "show every trajectory, token by token, in the browser or as one HTML file",
        "diagnose": "name the faults of a run, with evidence and advice",
        "compare": "show runs beside each other: configs, success, behaviour and cost",
    },
    "More": {
        "doctor": "check that a run would start here and show what the plugin registers",
        "prepare": "write the rows of an environment for verl, or check existing rows",
        "evaluate": "evaluate a model behind an OpenAI-compatible server in an environment",
        "play": "ask a trained checkpoint one question and show the episode",
        "serve": "serve a model folder to OpenAI-compatible clients, on a CPU or one GPU",
        "model": "test whether a model is a good start for RL, merge models, or compare them",
        "data": "make data sets from trajectories of runs, check and split data sets",
        "reward": "audit a rubric on stored trajectories, or compare rubrics and runs",
        "judge": "test an LLM judge with adversarial answers",
        "swe": "make, check, import and export tasks that fix repositories",
        "sandbox": "run untrusted code, try the sandbox backends, or serve sandboxes",
        "tiny-model": "write a tiny random model with a tokenizer and a chat template",
    },
}
"""Heading -> subcommand -> one line of help."""
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
MODULES = {
    "quickstart": "verl_agentic.cpu.quickstart",
    "doctor": "verl_agentic.checks.cli.doctor",
    "recipes": "verl_agentic.catalogue.recipes",
    "env": "verl_agentic.evaluate.cli.env",
    "swe": "verl_agentic.swe.cli",
    "prepare": "verl_agentic.data.cli.prepare",
    "judge": "verl_agentic.graders.cli.judge",
    "preflight": "verl_agentic.checks.cli.preflight",
    "dryrun": "verl_agentic.checks.cli.dryrun",
    "view": "verl_agentic.observe.cli.view",
    "diagnose": "verl_agentic.observe.cli.diagnose",
    "compare": "verl_agentic.observe.cli.compare",
    "data": "verl_agentic.data.cli.data",
    "reward": "verl_agentic.graders.cli.reward",
    "model": "verl_agentic.cpu.cli.model",
    "evaluate": "verl_agentic.evaluate.cli.evaluate",
    "play": "verl_agentic.evaluate.cli.play",
    "serve": "verl_agentic.cpu.cli.serve",
    "sandbox": "verl_agentic.sandbox.cli",
    "tiny-model": "verl_agentic.cpu.cli.tiny_model",
}
"""Subcommand -> its module, an address, because most commands belong to extensions."""
_TRACEBACK = "--traceback"
"""Option of every command. It is read here, so that the help of each command stays short."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 fine, 1 the check or run failed, 2 wrong use."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    shows_traceback = _TRACEBACK in arguments
    arguments = [argument for argument in arguments if argument != _TRACEBACK]
    shows_all = arguments[-2:] in (["--help", "all"], ["-h", "all"])
    if shows_all:
        arguments.pop()
    parser = (argparse.ArgumentParser if shows_all else BriefParser)(
        prog="verl-agentic",
        usage="verl-agentic COMMAND ...",
        description=_format_overview(),
        epilog="Show the options of a command: verl-agentic COMMAND --help, or all of them: --help all\n"
        f"Show the whole traceback of an error: add {_TRACEBACK} to any command",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="verl-agentic", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--version", action=_ShowVersions, nargs=0, help="print the versions of this package and of verl"
    )
    for name, line in COMMANDS.items():
        subparser = subparsers.add_parser(name, description=sentence(line))
        if arguments[:1] == [name]:
            _load_command(name).add_arguments(subparser)
    if not arguments:
        parser.print_help()
        return 0
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        from verl_agentic.base.settings import did_you_mean

        parser.error(f"unknown command, got {arguments[0]!r}{did_you_mean(arguments[0], COMMANDS)} See --help")
    parsed = _parse_arguments(parser, arguments)
    parsed.traceback = shows_traceback
    # Progress bars of other libraries would break ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        return _load_command(parsed.command).run(parsed)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _print_error(error, shows_traceback=shows_traceback)


class _ShowVersions(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *args: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        for package in ("verl-agentic", "verl"):
            try:
                print(package, version(package))
            except PackageNotFoundError:
                print(package, "is not installed")
        parser.exit()


def _format_overview() -> str:
    """Returns the commands under their headings."""
    width = max(map(len, COMMANDS))
    lines = ["Reinforcement learning for LLM agents, as a plugin for an unmodified verl."]
    for heading, commands in GROUPS.items():
        lines += ["", f"{heading}:", *(f"  {name:{width}}  {line}" for name, line in commands.items())]
    return "\n".join(lines)


def _parse_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed arguments. Allows options between overrides, which argparse does not."""
    parsed, rest = parser.parse_known_args(arguments)
    wrong_arguments = [argument for argument in rest if argument.startswith("-") or not hasattr(parsed, "overrides")]
    if wrong_arguments:
        parser.error(f"unrecognized arguments: {' '.join(wrong_arguments)}")
    if rest:
        parsed.overrides = [*parsed.overrides, *rest]
    return parsed


def _load_command(name: str):
    return importlib.import_module(MODULES[name])


def _print_error(error: Exception, *, shows_traceback: bool) -> int:
    from verl_agentic.base.errors import AgenticError
    from verl_agentic.base.places.error_places import locate_error

    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.strerror}, got {str(error.filename)!r}; check the path"
    elif not isinstance(error, AgenticError):
        raise error
    is_terminal = sys.stderr.isatty()
    red, plain = ("\033[31m", "\033[0m") if is_terminal else ("", "")
    if shows_traceback:
        traceback.print_exception(error)
        return 2
    print(f"{red}{type(error).__name__}: {text}{plain}", file=sys.stderr)
    if error.__cause__ is not None and locate_error(error.__cause__):
        print(f"{_TRACEBACK} shows the whole traceback", file=sys.stderr)
    return 2
