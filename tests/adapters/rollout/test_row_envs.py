"""Before a run starts, its rows have one environment each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl")

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.paths import envs_dir
from verl_agentic.base.types import Message
from verl_agentic.data.prepare import to_records, write_parquet
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.verl.rollout.row_envs import check_row_envs

ROW = EnvRow(prompt=(Message("user", "1?"),), ground_truth="1", data_source="x")
SUFFIXES = ["parquet", "jsonl"]


def check(*files: Path | str, env: str | None, split: str = "train", **agent: str) -> None:
    rollout = {"agent": agent, "custom": {"agentic": {"env": env}}}
    data = {f"{split}_files": [str(file) for file in files]}
    check_row_envs(OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": data}))


def file_of(folder: Path, env: str, *, suffix: str = "parquet", **columns: Any) -> Path:
    path = folder / f"rows{len(list(folder.iterdir()))}.{suffix}"
    records = [{**record, **columns} for record in to_records([ROW] * 3, split="t", agent_name="env_agent", env_id=env)]
    (write_parquet if suffix == "parquet" else write_json_lines)(records, path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("split", ["train", "val"])
def test_a_row_of_another_environment_stops_the_run_and_both_are_named(tmp_path: Path, suffix: str, split: str) -> None:
    good, bad = (file_of(tmp_path, env, suffix=suffix) for env in ("", "/gone/vault"))
    check(good, env="./vault", split=split)
    with pytest.raises(ConfigError, match=rf"{bad.name}, got extra_info.env='/gone/vault' and agentic.env='./vault'"):
        check(good, bad, env="./vault", split=split)


def test_rows_of_several_environments_need_a_run_without_one(tmp_path: Path) -> None:
    mixed = [file_of(tmp_path, env) for env in ("python_math", "./vault")]
    check(*mixed, env=None)
    with pytest.raises(ConfigError, match=r"agentic\.env"):
        check(*mixed, env="python_math")
    with pytest.raises(ConfigError, match=r"extra_info\.env"):
        check(*mixed, file_of(tmp_path, ""), env=None)


@pytest.mark.parametrize(
    ("of_row", "of_run"),
    [
        ("{here}/vault", "./vault"),
        ("vault/../vault", "{here}/vault"),
        ("{here}/vault.py:play", "./vault.py:play"),
        ("{envs}/python_math", "python_math"),
        ("textarena/Nim-v0", "textarena"),
    ],
)
def test_other_names_of_the_same_environment_are_no_conflict(
    of_row: str, of_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [name.format(here=tmp_path, envs=envs_dir()) for name in (of_row, of_run)]
    check(file_of(tmp_path, names[0]), env=names[1])
    with pytest.raises(ConfigError, match="two environments"):
        check(file_of(tmp_path, names[0]), env=f"{names[1]}2")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_of_other_loops_and_files_that_cannot_be_read_are_left_alone(tmp_path: Path, suffix: str) -> None:
    check(file_of(tmp_path, "", suffix=suffix, agent_name="tool_agent"), env=None, default_agent_loop="env_agent")
    check(file_of(tmp_path, "other", suffix=suffix, agent_name="tool_agent"), env="vault")
    nameless = file_of(tmp_path, "other", suffix=suffix, agent_name=None)
    check(nameless, env="vault", default_agent_loop="single_turn_agent")
    with pytest.raises(ConfigError, match="two environments"):
        check(nameless, env="vault", default_agent_loop="env_agent")
    (tmp_path / "broken.parquet").write_text("no")
    check("hdfs://host/rows.parquet", tmp_path / "gone.parquet", tmp_path / "broken.parquet", env="vault")
