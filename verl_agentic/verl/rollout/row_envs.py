"""The environments that the rows of a run name, compared with `agentic.env` before the run starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import DataError
from verl_agentic.episode.env_package import choose_env
from verl_agentic.log.files.parquet import extra_of
from verl_agentic.log.files.parquet_rows import read_parquet
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.verl.sections import AGENTIC, ROLLOUT

_LOOP = "env_agent"


def check_row_envs(config: Any) -> None:
    """Refuses rows of `env_agent` without an environment, or with another one than that of the run.

    Files that cannot be read here, such as remote ones, are left to verl. The agent loop repeats the check.

    Raises:
        ConfigError: see `choose_env`.
    """
    agent = OmegaConf.select(config, f"{ROLLOUT}.agent") or {}
    if agent.get("agent_loop_config_path"):  # it may give the loop another environment
        return
    run_env = OmegaConf.select(config, f"{AGENTIC}.env")
    for split in ("train", "val"):
        files = OmegaConf.select(config, f"data.{split}_files") or []
        for file in [files] if isinstance(files, str) else files:
            for env in _read_envs(Path(file).expanduser(), default_loop=agent.get("default_agent_loop")):
                choose_env(env, run_env, rows=f"a row of {file}")


def _read_envs(path: Path, *, default_loop: str | None) -> set[str]:
    """Returns the environments of the rows of `env_agent`; none for a file that cannot be read."""
    try:
        return set(_iter_envs(path, default_loop=default_loop))
    except DataError:
        return set()


def _iter_envs(path: Path, *, default_loop: str | None) -> Iterator[str]:
    columns = ("agent_name", "extra_info")
    is_parquet = path.suffix == ".parquet"
    records = read_parquet(path, columns=columns) if is_parquet else (record for _, record in numbered_records(path))
    for record in records:
        if "agent_name" not in record and default_loop != _LOOP:
            return  # a file may be large, and no row of it is ours
        if (record.get("agent_name") or default_loop) == _LOOP:
            yield str(extra_of(record.get("extra_info")).get("env") or "")
