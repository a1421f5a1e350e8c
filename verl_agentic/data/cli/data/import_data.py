"""`verl-agentic data import`: writes rows of a published data set for the environment that takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from verl_agentic.cli.options.typed_options import Options, declare, typed_command
from verl_agentic.data.importing.formats import FORMATS


class TestOptions(Options):
    """Options of programming tasks."""

    GROUP = ("programming tasks",)
    public_tests: int = declare("let the policy run the first N tests of a task, which then do not score (default "
                                "%(default)s)", 0, min=0, metavar="N")  # fmt: skip
    max_tests: int | None = declare("score with the N tests that have the longest inputs (default: with all)", min=1,
                                    metavar="N")  # fmt: skip


class ImportOptions(TestOptions):
    """Options of an import."""

    format: str = declare(f"read this format: {', '.join(sorted(FORMATS))}", is_required=True, is_positional=True,
                          choices=sorted(FORMATS), metavar="FORMAT")  # fmt: skip
    files: Sequence[Path] = declare("read these files (.parquet, .jsonl, .json) or folders of Dataset.save_to_disk",
                                    is_required=True, is_positional=True, nargs="+", metavar="FILE")  # fmt: skip
    out: Path = declare("write train.parquet or test.parquet into this folder", is_required=True, metavar="DIR")
    split: Literal["train", "test"] = declare("write rows of this split (default %(default)s)", "train")
    question: str | None = declare("take questions from this column (default: that of the format)", metavar="COLUMN")
    answer: str | None = declare("take answers or tests from this column; dots lead into objects (default: that of the "
                                 "format)", metavar="COLUMN")  # fmt: skip


def write_imported(options: ImportOptions) -> int:
    """Writes the file and prints what was left out; returns 0, or 1 if no row is left."""
    from verl_agentic.data.file_checks import check_records
    from verl_agentic.data.importing.import_rows import ImportSettings, env_config, import_rows
    from verl_agentic.data.prepare import to_records, tools_of, write_parquet
    from verl_agentic.episode.env_package import load_env_package

    names = ("question", "answer", "public_tests", "max_tests")
    settings = ImportSettings(**{name: getattr(options, name) for name in names})
    imported = import_rows(options.format, options.files, settings)
    env, config = FORMATS[options.format].env, env_config(options.format, settings)
    out = options.out / f"{options.split}.parquet"
    if imported.rows:
        package = load_env_package(env)
        records = to_records(imported.rows, split=options.split, agent_name="env_agent")
        check = check_records(records, tools_of=tools_of(package, config), check_row=package.check_row)
        asyncio.run(check)
        write_parquet(records, out)
    print(f"{out}: {len(imported.rows)} rows of {options.format} for {env}")
    for reason, count in imported.left_out.most_common():
        print(f"left out {count}: {reason}\n    such as {imported.examples[reason][:300]}")
    if not imported.rows:
        return 1
    key = {"train": "data.train_files", "test": "data.val_files"}[options.split]
    overrides = [f"agentic.env_config.{name}={str(value).lower()}" for name, value in config.items()]
    print(f"{key}={out.resolve()} agentic.env={env}", *overrides)
    if env == "search_qa":
        print("search_qa needs passages: set agentic.env_config.url (a server) or agentic.env_config.corpus (a folder)")
    return 0


add_arguments, run = typed_command(ImportOptions, write_imported)
