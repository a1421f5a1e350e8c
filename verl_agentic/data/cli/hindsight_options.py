"""`verl-agentic prepare --hindsight` and `--solved`: write a run's episodes as rows for SFT."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from verl_agentic.cli.options.typed_options import Options, declare

if TYPE_CHECKING:
    from verl_agentic.episode.env_package import EnvPackage
    from verl_agentic.rewards.sample import Sample

FILE, SOLVED_FILE, REWRITTEN_FILE = "hindsight.jsonl", "solved.jsonl", "rewritten.jsonl"


class EpisodeRowOptions(Options):
    """Options of rows from the episodes of a run."""

    GROUP = ("rows for SFT from the episodes of a run",)
    hindsight: Path | None = declare(f"write only OUT/{FILE}: the solved episodes of this run, and failures under the "
                                     "task that they solved instead", metavar="RUN_DIR")  # fmt: skip
    solved: Path | None = declare(f"write only OUT/{SOLVED_FILE}: the solved episodes of this run (rejection "
                                  "sampling)", metavar="RUN_DIR")  # fmt: skip
    rewrite: Path | None = declare(f"write only OUT/{REWRITTEN_FILE}: failed episodes of this run, rewritten by a "
                                   "model so that the environment scores 1", metavar="RUN_DIR")  # fmt: skip
    rewriter: Sequence[str] = declare("set an option of this model: url, model, api_key_env, temperature, ... "
                                      "(--rewrite)", (), metavar="KEY=VALUE")  # fmt: skip
    per_task: int | None = declare("write at most N episodes of a task (--solved)", min=1, metavar="N")
    model: str | None = declare("use tokenizer and chat template of this model, which will be trained", metavar="DIR")
    protocol: str = declare("read turns in this protocol (default %(default)s)", "chat", metavar="NAME")
    tool_format: str = declare("read tool calls with this parser, for protocol chat (default %(default)s)", "hermes",
                               metavar="NAME")  # fmt: skip
    split: Literal["train", "val"] = declare("take episodes of training, or of validation and evaluations (default "
                                             "%(default)s)", "train")  # fmt: skip
    config: Sequence[str] = ()
    """Arguments of `make_env`, an option of `prepare`."""


def write_hindsight(options: EpisodeRowOptions, package: EnvPackage, folder: Path) -> None:
    """Writes the file into a folder and prints the number of solved, relabelled and unused episodes.

    Raises:
        ConfigError: no model is named.
        DataError: the environment has no `describe`, or no stored episode gives a row.
    """
    from verl_agentic.base.errors import ConfigError, DataError
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.data.datasets.hindsight_rows import write_hindsight_rows
    from verl_agentic.verl.rollout.model_codec import load_codec

    option = "--solved" if options.solved else "--hindsight"
    if options.model is None:
        raise ConfigError(f"{option} needs a tokenizer, got no --model; name the folder of the model to be trained")
    path, samples = folder / FILE, _read_split_samples(options)
    if options.solved:
        path, package = folder / SOLVED_FILE, replace(package, describe=lambda sample: None)
        samples = _first_solved(samples, options.per_task)
    tokenizer, codec = load_codec(options.model, tool_format=options.tool_format, protocol=options.protocol)
    config = parse_key_values(options.config, option="--config")
    fresh = path.with_suffix(".new")  # an existing file stays if there are no rows
    numbers = asyncio.run(
        write_hindsight_rows(samples, fresh, package=package, codec=codec, tokenizer=tokenizer, config=config)
    )
    counts = f"{numbers.solved} solved, {numbers.relabelled} relabelled, {numbers.left_out} left out"
    if not numbers.solved + numbers.relabelled:
        fresh.unlink()
        raise DataError(
            f"none of {len(samples)} episodes gives a row, got {counts}; check that --protocol {options.protocol} and "
            "--tool-format are those of the run"
        )
    fresh.replace(path)
    print(f"{path}: {numbers.solved + numbers.relabelled} rows of {len(samples)} episodes: {counts}")
    print(f"data.train_files={path.resolve()}")


def write_rewritten(options: EpisodeRowOptions, package: EnvPackage, folder: Path) -> None:
    """Writes rewritten episodes into a folder and prints their number.

    Raises:
        ConfigError: no model is named, or the rewriter's options are invalid.
        DataError: no rewritten episode is solved.
    """
    from verl_agentic.base.errors import ConfigError, DataError
    from verl_agentic.base.settings import read_settings
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.data.datasets.retrospective_rows import write_retrospective_rows
    from verl_agentic.graders.models.chat_model import ChatModel
    from verl_agentic.verl.rollout.model_codec import load_codec

    if options.model is None:
        raise ConfigError("--rewrite needs a tokenizer, got no --model; name the folder of the model to be trained")
    model = read_settings(ChatModel, parse_key_values(options.rewriter, option="--rewriter"), section="--rewriter")
    samples, path = _read_split_samples(options), folder / REWRITTEN_FILE
    tokenizer, codec = load_codec(options.model, tool_format=options.tool_format, protocol=options.protocol)
    config = parse_key_values(options.config, option="--config")
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


def _read_split_samples(options: EpisodeRowOptions) -> list[Sample]:
    from verl_agentic.base.errors import DataError
    from verl_agentic.graders.stored_samples import read_samples

    folder = next(filter(None, (options.solved, options.hindsight, options.rewrite)))
    stored = read_samples(folder)
    samples = [trajectory.sample for trajectory in stored if trajectory.split == options.split]
    if not samples:
        raise DataError(
            f"no episode of --split {options.split} is stored below {folder}, got {len(stored)} of the other; "
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
