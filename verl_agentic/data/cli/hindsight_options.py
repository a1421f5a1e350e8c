"""`verl-agentic prepare --hindsight` and `--solved`: write a run's episodes as rows for SFT."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.options.numbers import whole

if TYPE_CHECKING:
    from verl_agentic.episode.env_package import EnvPackage
    from verl_agentic.rewards.sample import Sample

FILE, SOLVED_FILE, REWRITTEN_FILE = "hindsight.jsonl", "solved.jsonl", "rewritten.jsonl"


def add_hindsight_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("rows for SFT from the episodes of a run")
    group.add_argument("--hindsight", type=Path, metavar="RUN_DIR", help=f"write only OUT/{FILE}: the solved episodes "
                       "of this run, and failures under the task that they solved instead")  # fmt: skip
    group.add_argument("--solved", type=Path, metavar="RUN_DIR", help=f"write only OUT/{SOLVED_FILE}: the solved "
                       "episodes of this run (rejection sampling)")  # fmt: skip
    group.add_argument("--rewrite", type=Path, metavar="RUN_DIR", help=f"write only OUT/{REWRITTEN_FILE}: failed "
                       "episodes of this run, rewritten by a model so that the environment scores 1")  # fmt: skip
    group.add_argument("--rewriter", action="append", default=[], metavar="KEY=VALUE", help="set an option of this "
                       "model: url, model, api_key_env, temperature, ... (--rewrite)")  # fmt: skip
    group.add_argument("--per-task", type=whole(1), metavar="N", help="write at most N episodes of a task (--solved)")
    group.add_argument(
        "--model", metavar="DIR", help="use tokenizer and chat template of this model, which will be trained"
    )
    group.add_argument("--protocol", default="chat", metavar="NAME", help="read turns in this protocol (default "
                       "%(default)s)")  # fmt: skip
    group.add_argument("--tool-format", default="hermes", metavar="NAME", help="read tool calls with this parser, "
                       "for protocol chat (default %(default)s)")  # fmt: skip
    group.add_argument("--split", choices=("train", "val"), default="train", help="take episodes of training, or "
                       "of validation and evaluations (default %(default)s)")  # fmt: skip


def write_hindsight(args: argparse.Namespace, package: EnvPackage, folder: Path) -> None:
    """Writes the file into a folder and prints the number of solved, relabelled and unused episodes.

    Raises:
        ConfigError: no model is named.
        DataError: the environment has no `describe`, or no stored episode gives a row.
    """
    from verl_agentic.base.errors import ConfigError, DataError
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.data.datasets.hindsight_rows import write_hindsight_rows
    from verl_agentic.verl.rollout.model_codec import load_codec

    option = "--solved" if args.solved else "--hindsight"
    if args.model is None:
        raise ConfigError(f"{option} needs a tokenizer, got no --model; name the folder of the model to be trained")
    path, samples = folder / FILE, _read_split_samples(args)
    if args.solved:
        path, package = folder / SOLVED_FILE, replace(package, describe=lambda sample: None)
        samples = _first_solved(samples, args.per_task)
    tokenizer, codec = load_codec(args.model, tool_format=args.tool_format, protocol=args.protocol)
    config: dict[str, Any] = parse_key_values(args.config, option="--config")
    fresh = path.with_suffix(".new")  # an existing file stays if there are no rows
    numbers = asyncio.run(
        write_hindsight_rows(samples, fresh, package=package, codec=codec, tokenizer=tokenizer, config=config)
    )
    counts = f"{numbers.solved} solved, {numbers.relabelled} relabelled, {numbers.left_out} left out"
    if not numbers.solved + numbers.relabelled:
        fresh.unlink()
        raise DataError(
            f"none of {len(samples)} episodes gives a row, got {counts}; check that --protocol {args.protocol} and "
            "--tool-format are those of the run"
        )
    fresh.replace(path)
    print(f"{path}: {numbers.solved + numbers.relabelled} rows of {len(samples)} episodes: {counts}")
    print(f"data.train_files={path.resolve()}")


def write_rewritten(args: argparse.Namespace, package: EnvPackage, folder: Path) -> None:
    """Writes rewritten episodes into a folder and prints their number.

    Raises:
        ConfigError: no model is named, or the rewriter's options are invalid.
        DataError: no rewritten episode is solved.
    """
    from verl_agentic.base.errors import ConfigError, DataError
    from verl_agentic.base.settings import read_settings
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.data.datasets.retrospective_rows import write_retrospective_rows
    from verl_agentic.graders.models.chat_model import ChatModel
    from verl_agentic.verl.rollout.model_codec import load_codec

    if args.model is None:
        raise ConfigError("--rewrite needs a tokenizer, got no --model; name the folder of the model to be trained")
    model = read_settings(ChatModel, parse_key_values(args.rewriter, option="--rewriter"), section="--rewriter")
    samples, path = _read_split_samples(args), folder / REWRITTEN_FILE
    tokenizer, codec = load_codec(args.model, tool_format=args.tool_format, protocol=args.protocol)
    config: dict[str, Any] = parse_key_values(args.config, option="--config")
    fresh = path.with_suffix(".new")  # an existing file stays if there are no rows
    writing = write_retrospective_rows(
        samples, fresh, package=package, codec=codec, tokenizer=tokenizer, model=model, config=config
    )
    if not (count := asyncio.run(writing)):
        fresh.unlink()
        raise DataError(f"no rewritten episode is solved, got {len(samples)} episodes; use a stronger --rewriter")
    fresh.replace(path)
    print(f"{path}: {count} synthetic rows of {len(samples)} episodes, for SFT only")
    print(f"data.train_files={path.resolve()}")


def _read_split_samples(args: argparse.Namespace) -> list[Sample]:
    from verl_agentic.base.errors import DataError
    from verl_agentic.data.stored_samples import read_samples

    folder = args.solved or args.hindsight or args.rewrite
    stored = read_samples(folder)
    samples = [trajectory.sample for trajectory in stored if trajectory.split == args.split]
    if not samples:
        raise DataError(
            f"no episode of --split {args.split} is stored below {folder}, got {len(stored)} of the other; "
            "choose that one"
        )
    return samples


def _first_solved(samples: list[Sample], per_task: int | None) -> list[Sample]:
    """Returns the solved samples, of each task at most a number. Raises DataError if no episode is solved."""
    from verl_agentic.base.errors import DataError

    solved = [sample for sample in samples if sample.env is not None and sample.env.outcome >= 1.0]
    if not solved:
        raise DataError(f"no episode is solved, got {len(samples)}; sample more attempts, or easier tasks")
    num_by_task: Counter[str] = Counter()
    selection = []
    for sample in solved:
        name = str(sample.extra.get("task_id") or sample.prompt)
        num_by_task[name] += 1
        if per_task is None or num_by_task[name] <= per_task:
            selection.append(sample)
    return selection
