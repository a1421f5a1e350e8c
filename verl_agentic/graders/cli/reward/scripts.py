"""`verl-agentic reward audit --env`: what policies without a model are paid in an environment."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import log_only_from
from verl_agentic.cli.options.option_values import whole

if TYPE_CHECKING:
    from verl_agentic.evaluate.env_validation.answer_checks import AnswerFindings
    from verl_agentic.evaluate.env_validation.env_harness import EnvHarness
    from verl_agentic.evaluate.env_validation.scripted_rewards import ScriptedReward
    from verl_agentic.rewards.scorer import Scorer

_MAX_GUESSED_ROWS = 20


def add_script_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of audits with scripted policies."""
    group = parser.add_argument_group(
        "scripted policies",
        "Instead of RUN_DIR: constant answers, dumps of all tool outputs, loops with counters, harmless calls and "
        "altered solutions play an environment.",
    )
    group.add_argument("--env", metavar="ENV", help="run the policies in this environment")
    group.add_argument(
        "--rows", type=Path, metavar="FILE", help="use the rows of this file (default: the examples and new rows)"
    )
    group.add_argument("--count", type=whole(1), default=32, metavar="N", help="make N new rows (default %(default)s)")
    group.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="pass an argument to "
                       "make_env, as JSON or text")  # fmt: skip
    group.add_argument("--max-scripted", type=float, metavar="X", help="allow this mean outcome (default: that of the "
                       "environment's card, else 0)")  # fmt: skip


def audit_env(args: argparse.Namespace) -> int:
    """Prints what each policy is paid; returns 1 if one is paid more than the bound, or a guess beyond chance."""
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.env_validation.env_harness import EnvHarness
    from verl_agentic.evaluate.env_validation.script_codec import make_script_codec
    from verl_agentic.evaluate.env_validation.scripted_rewards import script_problems
    from verl_agentic.evaluate.env_validation.validate_env import rows_to_validate
    from verl_agentic.log.files.rows import read_rows
    from verl_agentic.rewards.rubric import Rubric
    from verl_agentic.rewards.scorer import Scorer

    package = load_env_package(args.env)
    config = parse_key_values(args.config, option="--config")
    package.configured(config)
    rows = read_rows(args.rows) if args.rows is not None else rows_to_validate(package, count=args.count)
    tokenizer, codec = make_script_codec("chat")
    harness = EnvHarness(package=package, rows=rows, codec=codec, tokenizer=tokenizer, config=config)
    scorer = None if args.rubric is None else Scorer(Rubric.from_file(args.rubric))
    with log_only_from(logging.CRITICAL, logger="verl_agentic"), contextlib.ExitStack() as stack:
        if scorer is not None:
            stack.callback(scorer.close)
        results, solution, guesses = asyncio.run(_play_scripts(harness, scorer))
    bound = args.max_scripted
    if bound is None:
        bound = package.card.max_scripted if package.card is not None else 0.0
    problems = script_problems(results, max_outcome=bound, solution=solution)
    problems += [f"guess {text}" for text in guesses.paid] + [f"refused solution {text}" for text in guesses.refused]
    if args.json:
        rewards = [result.to_dict() for result in results]
        report = {"policies": rewards, "solution": None if solution is None else solution.to_dict()}
        report["guesses"] = {"played": guesses.num_policies, "paid": guesses.paid, "refused": guesses.refused}
        print(json.dumps({"env": args.env, "rows": len(rows), "max_scripted": bound, **report, "problems": problems}))
    else:
        _print_rewards(args.env, len(rows), [*results, *([] if solution is None else [solution])], problems)
    return 1 if problems else 0


async def _play_scripts(
    harness: EnvHarness, scorer: Scorer | None
) -> tuple[list[ScriptedReward], ScriptedReward | None, AnswerFindings]:
    from verl_agentic.evaluate.env_validation.answer_checks import check_solved_rows
    from verl_agentic.evaluate.env_validation.scripted_rewards import audit_scripts

    results, solution, solved = await audit_scripts(harness, scorer=scorer)
    guesses, _ = await check_solved_rows(harness, solved, max_rows=_MAX_GUESSED_ROWS, scorer=scorer)
    return results, solution, guesses


def _print_rewards(env: str, num_rows: int, results: list[ScriptedReward], problems: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table: Any = Table("policy", title=Text(f"{env}: {num_rows} rows"), title_justify="left")
    for name in ("mean outcome", "mean reward", "paid rows", "void"):
        table.add_column(name, justify="right")
    for result in results:
        cells = (f"{result.outcome:.3g}", f"{result.reward:.3g}", str(len(result.paid_rows)), str(result.num_void))
        table.add_row(Text(result.name), *cells)
    console = Console()
    console.print(table)
    for problem in problems or ["no policy is paid above the bound"]:
        console.print(Text(problem, style="red" if problems else "green"), soft_wrap=True)
