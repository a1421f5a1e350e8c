"""Writes an environment's rows for verl, and checks them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvError, boundary
from verl_agentic.data.file_checks import ToolNames
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.log.files.parquet import to_columns
from verl_agentic.log.files.parquet_rows import write_parquet as write_parquet
from verl_agentic.log.files.record_files import numbered_records

SHOWN_KEYS = ("task_id", "split", "env", "tool_selection")
"""The keys of `extra_info` outside `extra_json`, for every environment."""


def make_rows(
    package: EnvPackage, *, split: str, count: int, seed: int, options: Mapping[str, Any] | None = None
) -> list[EnvRow]:
    """Returns new rows of an environment.

    Raises:
        ConfigError: it cannot make rows, or not with these arguments.
    """
    options = options or {}
    if package.make_rows is None:
        raise ConfigError(f"environment {package.env_id!r} cannot make rows, got no make_rows; bring your own rows")
    parameters = inspect.signature(package.make_rows).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = sorted(set(options) - set(parameters))
    if unknown and not takes_all:
        option_names = sorted(set(parameters) - {"split", "count", "seed"})
        raise ConfigError(
            f"unknown options of the rows of {package.env_id!r}, got {unknown}; known ones: {option_names}"
        )
    with boundary(ConfigError, f"making {count} {split} rows of {package.env_id!r}"):
        return package.make_rows(split=split, count=count, seed=seed, **options)


def to_records(
    rows: Sequence[EnvRow], *, split: str, agent_name: str, env_id: str = "", tool_selection: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Returns rows as the columns of a file for verl; the columns are the same for all environments.

    Args:
        rows: of the file.
        split: recorded in `extra_info`.
        agent_name: verl's name of the agent loop.
        env_id: name of the environment in rows of several environments; empty: that which a row has, or none.
        tool_selection: the policy's tools; empty: those that the row selects, or else all.
    """
    labelled_rows = [
        replace(
            row,
            extra={
                **row.extra,
                "task_id": str(row.extra.get("task_id", "")),
                "split": split,
                "env": env_id or str(row.extra.get("env") or ""),
                "tool_selection": list(tool_selection or row.extra.get("tool_selection") or ()),
            },
        )
        for row in rows
    ]
    return [{**columns, "agent_name": agent_name} for columns in to_columns(labelled_rows, shown=SHOWN_KEYS)]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a parquet or JSON lines file as verl reads them.

    Raises:
        DataError: it is missing or cannot be parsed.
    """
    return [record for _, record in numbered_records(path)]


def tools_of(package: EnvPackage, config: Mapping[str, Any]) -> ToolNames:
    """Returns a function row -> names of the tools of its started environment."""

    make_env = package.configured(config)

    async def names(row: EnvRow) -> set[str]:
        extra = {key: value for key, value in row.extra.items() if key != "tool_selection"}
        with boundary(EnvError, "making and starting it"):
            env = make_env(replace(row, extra=extra))
            try:
                await env.start()
                return {tool.name for tool in env.tools}
            finally:
                await env.close()

    return names
