"""The recipes of software engineering: preflight passes, and one step of each runs on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import verl_agentic
from verl_agentic.base.paths import recipes_dir
from verl_agentic.checks.cli.dryrun.translate import leaves
from verl_agentic.cli import main
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import write_rows
from verl_agentic.swe.grading.repo_task import RepoTask

pytestmark = pytest.mark.slow
FOLDER = recipes_dir() / "swe"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.endswith("_sft"))
# The solution is not guided and the sampled attempts are. No group has two outcomes, so the test compares them.
OWN = {"agent_rlvr": ["algorithm.adv_estimator=batch_baseline"]}


OPTIONS = {"swe": {}, "swe_edit": {"localisation": "files"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with rows, and a model with the positions of a large one."""
    folder, texts = tmp_path_factory.mktemp("swe"), []
    for env, options in OPTIONS.items():
        make_rows = load_env_package(env).make_rows
        assert make_rows is not None
        for split in ("train", "test"):
            rows = make_rows(split=split, count=16, seed=0, **options)
            write_rows(rows * 4, folder / f"{env}-{split}.jsonl")  # the sample has 16 tasks, a batch of SkyRL 64
            texts += [text for row in rows for text in (row.prompt[-1].content, *_patches(row.extra["task"]))]
    make_tiny_model(folder / "model", texts=texts * 2, token_share=0.03)
    path = folder / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 65_536}))
    return folder


def _arguments(folder: Path, name: str) -> list[str]:
    env = "swe_edit" if name == "swe_rl" else "swe"
    return [
        *("--config-dir", str(FOLDER), "--config-name", name),
        f"actor_rollout_ref.model.path={folder / 'model'}",
        f"data.train_files={folder / f'{env}-train.jsonl'}",
        f"data.val_files={folder / f'{env}-test.jsonl'}",
        f"trainer.default_local_dir={folder / 'out'}",
    ]


def _patches(task: str) -> tuple[str, str]:
    patch = RepoTask.from_json(task).patch
    return patch, json.dumps(patch)


@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("name", RECIPES)
def test_preflight_passes(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["preflight", *_arguments(folder, name), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, [check for check in report["checks"] if check["status"] == "fail"]
    solved = [check["found"] for check in report["checks"] if check["check"] == "reward"]
    assert len(solved) == 2 and all("the right answer gets the full outcome" in found for found in solved)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name == "agent_rlvr" else pytest.mark.recipes)
        for name in RECIPES
    ],
)
def test_a_step_on_a_cpu_is_right(name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = [*_arguments(folder, name), *OWN.get(name, [])]
    code = main(["dryrun", *config, "--out", str(tmp_path), "--timeout", "500", "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 0, (report["stages"], (tmp_path / "main_ppo.log").read_text(errors="replace")[-4_000:])
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert stages["update"]["status"] == stages["weights"]["status"] == "ok"
    assert report["proof"]["due"] == report["proof"]["due_with_gradient"] > 0


@pytest.mark.nightly
def test_a_step_of_rejection_sampling_runs_on_a_cpu(folder: Path, tmp_path: Path) -> None:
    row = {"input_ids": list(range(10, 40)), "loss_mask": [0] * 10 + [1] * 20}
    (tmp_path / "solved.jsonl").write_text(f"{json.dumps(row)}\n" * 8)
    groups = Path(verl_agentic.__file__).parent / "config" / "agentic"
    written = [yaml.safe_load((groups / f"{name}.yaml").read_text()) for name in ("one_device_sft", "cpu_sft")]
    without = ("trainer.required", "defaults")
    cpu = [f"++{key}={json.dumps(value)}" for one in written for key, value in leaves(one) if key not in without]
    cpu += ["engine.ulysses_sequence_parallel_size=1", "trainer.total_epochs=1"]
    command = ["-m", "verl.trainer.sft_trainer", "--config-dir", str(FOLDER), "--config-name", "swe_gym_sft"]
    values = [f"model.path={folder / 'model'}", f"data.train_files={tmp_path / 'solved.jsonl'}"]
    out = f"trainer.default_local_dir={tmp_path / 'out'}"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", *command, *values, out, *cpu],
        env={**os.environ, **CPU_ENVIRONMENT},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    assert (tmp_path / "out" / "global_step_1").is_dir()
