"""`verl-agentic prepare`: writes an environment's rows for verl, or a run's episodes as rows for SFT."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verl_agentic.cli.options.numbers import whole
from verl_agentic.data.cli.hindsight_options import add_hindsight_arguments, write_hindsight, write_rewritten

_FILES = {"train": "train.parquet", "test": "test.parquet"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", help="use this environment: the name of a bundled one, a folder, or a module")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write to this folder (default: data/ENV)")
    parser.add_argument(
        "--train", type=whole(0), default=1_000, metavar="N", help="write N rows for training (default %(default)s)"
    )
    parser.add_argument(
        "--test", type=whole(0), default=100, metavar="N", help="write N held-out rows (default %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="make rows from this seed (default %(default)s)"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="pass an argument to make_rows"
    )
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="pass an argument "
                        "to make_env, which names the tools")  # fmt: skip
    parser.add_argument("--tools", metavar="NAME,...", help="give the policy only these tools (default: all)")
    parser.add_argument("--agent-name", default="env_agent", metavar="NAME", help="write this agent loop of verl "
                        "into the rows (default %(default)s)")  # fmt: skip
    parser.add_argument("--name-env", action="store_true", help="name the environment in every row, so that a run can "
                        "mix files of several environments (default: agentic.env names it)")  # fmt: skip
    parser.add_argument("--learnable", type=Path, metavar="DIR", help="leave out tasks that were always or never "
                        "solved in this folder of an evaluation")  # fmt: skip
    parser.add_argument("--reward", nargs="+", default=[], metavar="NAME", help="refuse rows whose ground truth no "
                        "answer can meet by one of these reward components, such as math")  # fmt: skip
    parser.add_argument("--check", type=Path, nargs="+", metavar="FILE", help="check these files and write nothing")
    add_hindsight_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the files, or checks some; returns 0."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.data.file_checks import check_records
    from verl_agentic.data.prepare import tools_of
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.rewards.component import load_component

    package = load_env_package(args.env)
    stored = [name for name in ("hindsight", "solved", "rewrite") if getattr(args, name)]
    if len(stored) > 1 or (stored and (args.check or args.learnable)):
        raise ConfigError(
            f"--{stored[0]} cannot be combined with --check, --learnable or another of --hindsight, --solved and "
            "--rewrite, got both; drop one"
        )
    needs = {"rewriter": "rewrite", "per_task": "solved"}
    if unused := [name for name, mode in needs.items() if getattr(args, name) and mode not in stored]:
        raise ConfigError(
            f"--{unused[0].replace('_', '-')} needs --{needs[unused[0]]} RUN_DIR, got none; add or drop one"
        )
    if args.model and not stored:
        raise ConfigError(f"--model needs --hindsight, --solved or --rewrite, got {args.model!r} alone; drop it")
    if stored:
        write = write_rewritten if args.rewrite else write_hindsight
        write(args, package, _choose_out_folder(args, package))
        return 0
    check = partial(
        check_records,
        tools_of=tools_of(package, parse_key_values(args.config, option="--config")),
        check_row=package.check_row,
        components=[load_component(name) for name in args.reward],
    )
    return _check_files(args, check) if args.check else _write_files(args, package, check)


def _check_files(args: argparse.Namespace, check: Callable[..., Coroutine[Any, Any, None]]) -> int:
    from verl_agentic.data.prepare import read_records
    from verl_agentic.log.files.as_verl import refuse_changed

    for path in args.check:
        refuse_changed(path)
        records = read_records(path)
        asyncio.run(check(records, location=f"{path}: "))
        print(f"{path}: {len(records)} rows, fine")
    return 0


def _write_files(args: argparse.Namespace, package: Any, check: Callable[..., Coroutine[Any, Any, None]]) -> int:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.data.prepare import make_rows, to_records, write_parquet
    from verl_agentic.episode.env_package import absolute_id

    options = parse_key_values(args.option, option="--option")
    env_id = _relative_id(args.env) if args.name_env else ""
    out = _choose_out_folder(args, package)
    selection = [name.strip() for name in (args.tools or "").split(",") if name.strip()]
    if not args.train + args.test:
        raise ConfigError("no rows to write, got --train 0 and --test 0; ask for some of one")
    records_by_split = {}
    for split, count in (("train", args.train), ("test", args.test)):
        if count:
            rows = make_rows(package, split=split, count=count, seed=args.seed, options=options)
            records = to_records(rows, split=split, agent_name=args.agent_name, env_id=env_id, tool_selection=selection)
            asyncio.run(check(records, location=f"{split}: "))
            records_by_split[split] = (
                _select_learnable(records, args.learnable) if split == "train" and args.learnable else records
            )
    for split, records in records_by_split.items():
        write_parquet(records, out / _FILES[split])
        print(f"{out / _FILES[split]}: {len(records)} rows")
    keys = {"train": "data.train_files", "test": "data.val_files"}
    overrides = [f"{keys[split]}={(out / _FILES[split]).resolve()}" for split in records_by_split]
    if args.agent_name == "env_agent":
        overrides.append(f"agentic.env={'null' if args.name_env else absolute_id(args.env)}")
    print(" ".join(overrides))
    return 0


def _relative_id(env_id: str) -> str:
    """Returns an id whose path begins at the working folder, as it does in `agentic.env`."""
    from verl_agentic.episode.env_package import absolute_id

    address = absolute_id(env_id)
    return os.path.join(".", os.path.relpath(address)) if address.startswith("/") else address


def _choose_out_folder(args: argparse.Namespace, package: Any) -> Path:
    return args.out or Path("data") / package.folder.name


def _select_learnable(records: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Returns the records that an evaluation sometimes solved or did not contain."""
    from verl_agentic.evaluate.evaluation_log import read_episodes
    from verl_agentic.sampling.prompts.difficulty import is_learnable, pass_rates_of

    attempts = (rows[-1] for rows in read_episodes(folder).values())
    rates = pass_rates_of(attempts, [record["extra_info"]["task_id"] for record in records])
    selection = [record for record, keep in zip(records, is_learnable(rates), strict=True) if keep]
    num_left_out = len(records) - len(selection)
    print(f"{folder}: {num_left_out} of {len(records)} training rows are left out: always or never solved")
    return selection
