"""The environment `security`: find, exploit or fix the weakness of a small generated module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_agentic import ConfigError, EnvRow, Reward, StopReason, ToolEnv, Transcript
from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of

from .exploit import ExploitEnv
from .patch_task import store_files


class FindEnv(ToolEnv):
    """A module to read; the answer names the weak function and its weakness."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [])

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 for `function: weakness`, alone or in a box, else 0."""
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        answer = last_boxed(transcript.final_answer)
        answer = transcript.final_answer if answer is None else answer
        return Reward(float(normalise(answer) == normalise(str(self.row.ground_truth))))


def make_env(
    row: EnvRow,
    *,
    scaffold: str = "editor",
    max_steps: int | None = None,
    sandbox: str = "auto",
    pool: PoolOwner = "process",
) -> Any:
    """Returns the environment of one episode.

    Args:
        row: of `make_rows`; `extra["kind"]` is `find`, `exploit` or `patch`.
        scaffold: of `patch`, see `swe`.
        max_steps: turns of `patch`; None: the scaffold's.
        sandbox: backend: `auto`, `namespaces`, `docker` or `landlock`. `auto` uses `landlock` or stronger.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        ConfigError: the row has no kind, or the backend does not isolate.
    """
    kind = row.extra.get("kind")
    if kind not in ("find", "exploit", "patch"):
        raise ConfigError(f"a row of security has extra_info kind, got {kind!r}; use make_rows")
    if sandbox not in ("auto", "namespaces", "docker", "landlock"):
        raise ConfigError(f"sandbox must isolate weak code, got {sandbox!r}; use auto, namespaces, docker or landlock")
    if kind == "find":
        return FindEnv(row)
    if kind == "exploit":
        return ExploitEnv(row, runner=pool_of(pool, sandbox, at_least=None))
    row = replace(row, extra={**row.extra, "store": str(store_files(row).folder)})
    swe = load_env_package("swe")
    return swe.make_env(row, scaffold=scaffold, max_steps=max_steps, sandbox=sandbox, pool=pool)
