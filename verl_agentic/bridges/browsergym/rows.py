"""Rows: ids of BrowserGym and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message


def make_rows(*, split: Literal["train", "test"], count: int, seed: int, env_ids: Sequence[str] = ()) -> list[EnvRow]:
    """Returns `count` rows; the ids take turns. Choose different ids for training and tests.

    Args:
        split: `train` or `test`. Each split has seeds of its own, which many benchmarks ignore.
        count: number of rows.
        seed: seed of the first row.
        env_ids: ids of gymnasium, such as `browsergym/webarena.310`.

    Raises:
        ConfigError: no ids are given.
    """
    if not env_ids:
        raise ConfigError('browsergym needs env_ids, got none; name some, such as ["browsergym/webarena.310"]')
    first = 2 * (seed * count) + (split == "test")
    return [
        EnvRow(
            prompt=(Message("user", f"Solve the task {env_id} in a browser."),),
            data_source="browsergym",
            extra={"env_id": env_id, "seed": first + 2 * index, "task_id": f"{env_id}-{first + 2 * index}"},
        )
        for index, env_id in enumerate(list(env_ids)[i % len(env_ids)] for i in range(count))
    ]
