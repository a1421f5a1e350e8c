"""`verl-agentic env play`: a person plays one episode of an environment in the terminal."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import log_only_from
from verl_agentic.cli.findings import print_tracebacks, printable
from verl_agentic.cli.options.option_values import whole
from verl_agentic.evaluate.cli.env.codec_options import add_codec_options, make_chosen_codec

if TYPE_CHECKING:
    from rich.console import Console

    from verl_agentic.evaluate.typed_episode import Terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", help="play this environment: the name of a bundled one, a folder, or a module")
    parser.add_argument("--row", type=whole(0), default=0, metavar="N", help="play row N (default %(default)s)")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="use the rows of this file (default: the examples and new rows)"
    )
    add_codec_options(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the episode to this folder, beside earlier ones "
                        "(default: outputs/play/ENV-PROTOCOL)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Plays the episode and writes it; returns 1 if it is void, or the person left."""
    import asyncio

    from rich.console import Console

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.env_validation.validate_env import rows_to_validate
    from verl_agentic.evaluate.evaluation_log import EvaluationLog
    from verl_agentic.evaluate.evaluation_run import attempts
    from verl_agentic.evaluate.typed_episode import HELP, play_typed
    from verl_agentic.log.files.rows import read_rows
    from verl_agentic.log.run_files import write_tokenizer

    package = load_env_package(args.env)
    config = parse_key_values(args.config, option="--config")
    make_env = package.configured(config)
    rows = rows_to_validate(package, count=args.row + 1) if args.rows is None else read_rows(args.rows)
    if args.row >= len(rows):
        raise ConfigError(f"--row must be below the number of rows, {len(rows)}, got {args.row}; choose another")
    tokenizer, codec = make_chosen_codec(args)
    out = args.out or Path("outputs") / "play" / f"{Path(args.env).name}-{Path(args.protocol).stem}"
    settings = {"env": args.env, "model": "a person", "protocol": args.protocol, "tokenizer": args.model}
    log = EvaluationLog(out, {**settings, "config": config})
    try:
        plan = attempts([rows[args.row]], samples=len(log.episodes) + 1)
        attempt = next(attempt for attempt in plan if attempt.key not in log.episodes)
        terminal = _make_terminal(Console())
        terminal.show(HELP, "dim")
        playing = play_typed(attempt, make_env=make_env, codec=codec, tokenizer=tokenizer, terminal=terminal)
        with log_only_from(logging.WARNING if args.traceback else logging.CRITICAL, logger="verl_agentic"):
            episode = asyncio.run(playing)
        if episode is None:
            terminal.show("you left the episode; it is not written", "yellow")
            return 1
        write_tokenizer(out, tokenizer)  # for the viewer
        log.append(episode)
    finally:
        log.close()
    row = episode[-1]
    _show_result(terminal, row, out)
    if args.traceback:
        print_tracebacks([row["traceback"]])
    return 1 if row["is_void"] else 0


def _make_terminal(console: Console) -> Terminal:
    from rich.text import Text

    from verl_agentic.evaluate.typed_episode import Terminal

    return Terminal(
        show=lambda text, style: console.print(Text(printable(text), style=style)), read=lambda: input("> ")
    )


def _show_result(terminal: Terminal, row: Mapping[str, Any], out: Path) -> None:
    if row["error"]:
        terminal.show(row["error"], "red")
    score = dict(row["score"] or {"score": 0.0})
    reward, prefix = score.pop("score"), "reward/"
    parts = [f", {name.removeprefix(prefix)} {value:g}" for name, value in score.items() if name.startswith(prefix)]
    result = "void" if row["is_void"] else f"outcome {row['acc']:g}, reward {reward:g}{''.join(parts)}"
    terminal.show(f"stopped by {row['stop_reason']}: {result}", "bold")
    terminal.show(f"look at it: verl-agentic view {out}", "dim")
