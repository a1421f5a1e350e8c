"""`verl-agentic prepare`: writes an environment's rows for verl, or a run's episodes as rows for SFT."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verl_agentic.cli.options.typed_options import declare, typed_command
from verl_agentic.data.cli.hindsight_options import EpisodeRowOptions, write_hindsight, write_rewritten

_FILES = {"train": "train.parquet", "test": "test.parquet"}


class PrepareOptions(EpisodeRowOptions):
    """Options of rows of an environment."""

    COMMON = ("out", "train", "test", "option", "check")
    env: str = declare("use this environment: the name of a bundled one, a folder, or a module", is_required=True,
                       is_positional=True)  # fmt: skip
    out: Path | None = declare("write to this folder (default: data/ENV)", metavar="DIR")
    train: int = declare("write N rows for training (default %(default)s)", 1_000, min=0, metavar="N")
    test: int = declare("write N held-out rows (default %(default)s)", 100, min=0, metavar="N")
    seed: int = declare("make rows from this seed (default %(default)s)", 0, metavar="S")
    option: Sequence[str] = declare("pass an argument to make_rows", (), metavar="KEY=VALUE")
    config: Sequence[str] = declare("pass an argument to make_env, which names the tools", (), metavar="KEY=VALUE")
    tools: str | None = declare("give the policy only these tools (default: all)", metavar="NAME,...")
    agent_name: str = declare("write this agent loop of verl into the rows (default %(default)s)", "env_agent",
                              metavar="NAME")  # fmt: skip
    name_env: bool = declare("name the environment in every row, so that a run can mix files of several environments "
                             "(default: agentic.env names it)", False)  # fmt: skip
    learnable: Path | None = declare("leave out tasks that were always or never solved in this folder of an "
                                     "evaluation", metavar="DIR")  # fmt: skip
    reward: Sequence[str] = declare("refuse rows whose ground truth no answer can meet by one of these reward "
                                    "components, such as math", (), nargs="+", metavar="NAME")  # fmt: skip
    check: Sequence[Path] = declare("check these files and write nothing", (), nargs="+", metavar="FILE")


def prepare_rows(options: PrepareOptions) -> int:
    """Writes the files, or checks some; returns 0."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.data.file_checks import check_records
    from verl_agentic.data.prepare import tools_of
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.rewards.component import load_component

    package = load_env_package(options.env)
    stored = [name for name in ("hindsight", "solved", "rewrite") if getattr(options, name)]
    if len(stored) > 1 or (stored and (options.check or options.learnable)):
        raise ConfigError(
            f"--{stored[0]} cannot be combined with --check, --learnable or another of --hindsight, --solved and "
            "--rewrite, got both; drop one"
        )
    needs = {"rewriter": "rewrite", "per_task": "solved"}
    if unused := [name for name, mode in needs.items() if getattr(options, name) and mode not in stored]:
        raise ConfigError(
            f"--{unused[0].replace('_', '-')} needs --{needs[unused[0]]} RUN_DIR, got none; add or drop one"
        )
    if options.model and not stored:
        raise ConfigError(f"--model needs --hindsight, --solved or --rewrite, got {options.model!r} alone; drop it")
    if stored:
        write = write_rewritten if options.rewrite else write_hindsight
        write(options, package, _choose_out_folder(options, package))
        return 0
    check = partial(
        check_records,
        tools_of=tools_of(package, parse_key_values(options.config, option="--config")),
        check_row=package.check_row,
        components=[load_component(name) for name in options.reward],
    )
    return _check_files(options, check) if options.check else _write_files(options, package, check)


def _check_files(options: PrepareOptions, check: Callable[..., Coroutine[Any, Any, None]]) -> int:
    from verl_agentic.data.prepare import read_records
    from verl_agentic.log.files.as_verl import refuse_changed

    for path in options.check:
        refuse_changed(path)
        records = read_records(path)
        asyncio.run(check(records, location=f"{path}: "))
        print(f"{path}: {len(records)} rows, fine")
    return 0


def _write_files(options: PrepareOptions, package: Any, check: Callable[..., Coroutine[Any, Any, None]]) -> int:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.data.prepare import make_rows, to_records, write_parquet
    from verl_agentic.episode.env_package import absolute_id

    row_options = parse_key_values(options.option, option="--option")
    env_id = _relative_id(options.env) if options.name_env else ""
    out = _choose_out_folder(options, package)
    selection = [name.strip() for name in (options.tools or "").split(",") if name.strip()]
    if not options.train + options.test:
        raise ConfigError("no rows to write, got --train 0 and --test 0; ask for some of one")
    records_by_split = {}
    for split, count in (("train", options.train), ("test", options.test)):
        if count:
            rows = make_rows(package, split=split, count=count, seed=options.seed, options=row_options)
            records = to_records(
                rows, split=split, agent_name=options.agent_name, env_id=env_id, tool_selection=selection
            )
            asyncio.run(check(records, location=f"{split}: "))
            records_by_split[split] = (
                _select_learnable(records, options.learnable) if split == "train" and options.learnable else records
            )
    for split, records in records_by_split.items():
        write_parquet(records, out / _FILES[split])
        print(f"{out / _FILES[split]}: {len(records)} rows")
    keys = {"train": "data.train_files", "test": "data.val_files"}
    overrides = [f"{keys[split]}={(out / _FILES[split]).resolve()}" for split in records_by_split]
    if options.agent_name == "env_agent":
        overrides.append(f"agentic.env={'null' if options.name_env else absolute_id(options.env)}")
    print(" ".join(overrides))
    return 0


def _relative_id(env_id: str) -> str:
    """Returns an id whose path begins at the working folder, as it does in `agentic.env`."""
    from verl_agentic.episode.env_package import absolute_id

    address = absolute_id(env_id)
    return os.path.join(".", os.path.relpath(address)) if address.startswith("/") else address


def _choose_out_folder(options: PrepareOptions, package: Any) -> Path:
    return options.out or Path("data") / package.folder.name


def _select_learnable(records: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Returns the records that an evaluation sometimes solved or did not contain."""
    from verl_agentic.data.difficulty import is_learnable, pass_rates_of
    from verl_agentic.evaluate.evaluation_log import read_episodes

    attempts = (rows[-1] for rows in read_episodes(folder).values())
    rates = pass_rates_of(attempts, [record["extra_info"]["task_id"] for record in records])
    selection = [record for record, keep in zip(records, is_learnable(rates), strict=True) if keep]
    num_left_out = len(records) - len(selection)
    print(f"{folder}: {num_left_out} of {len(records)} training rows are left out: always or never solved")
    return selection


add_arguments, run = typed_command(PrepareOptions, prepare_rows)
