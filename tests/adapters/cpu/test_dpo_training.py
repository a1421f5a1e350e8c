"""DPO with verl's SFT trainer on the CPU, as a user would start it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.data.rows import write_json_lines
from verl_agentic.data.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow
_RECIPE = """
hydra:
  searchpath: [pkg://verl_agentic.config]
  output_subdir: null
  run: {dir: .}
defaults: [sft_trainer_engine, agentic/tiny_sft, _self_]
data: {train_batch_size: 4, micro_batch_size_per_gpu: 1, max_length: 128}
dpo: {beta: 0.5}
optim: {lr: 1.0e-3, lr_warmup_steps: 0, weight_decay: 0.0}
trainer: {logger: [file], project_name: test, experiment_name: test, total_training_steps: 5}
checkpoint: {save_contents: [model]}
"""


def pair(number: int) -> dict[str, Any]:
    """One side asks the tool and repeats what it says, the other one guesses."""
    call = {"function": {"name": "double", "arguments": {"number": number}}}
    seen = {"role": "tool", "content": str(2 * number)}
    return {
        "prompt": [{"role": "user", "content": f"Double {number}."}],
        "chosen": [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            seen,
            {"role": "assistant", "content": str(2 * number)},
        ],
        "rejected": [{"role": "assistant", "content": f"It is {number}, I think."}],
    }


def test_five_steps_on_two_ranks_raise_the_margin_of_the_chosen(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model", seed=0)
    write_json_lines(map(pair, range(10, 18)), tmp_path / "pairs.jsonl")
    (tmp_path / "run.yaml").write_text(_RECIPE)
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m"]
    overrides = [
        *("--config-dir", str(tmp_path), "--config-name", "run"),
        f"model.path={tmp_path / 'model'}",
        f"data.train_files={tmp_path / 'pairs.jsonl'}",
        f"data.val_files={tmp_path / 'pairs.jsonl'}",
        f"trainer.default_local_dir={tmp_path / 'out'}",
    ]
    environment = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "VERL_FILE_LOGGER_PATH": str(tmp_path / "metrics.jsonl"),
    }
    done = subprocess.run(
        [sys.executable, "-m", *launcher, "verl_agentic.adapters.dpo_trainer", *overrides],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    records = [json.loads(line)["data"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "train/loss" in record]
    assert len(steps) == 5
    # Before the first update the policy is its reference.
    assert steps[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert steps[0]["train/margin"] == pytest.approx(0, abs=1e-4)
    assert steps[-1]["train/margin"] > 0.5 and steps[-1]["train/accuracy"] == 1
    assert steps[-1]["train/loss"] < 0.6
    assert records[-1]["val/loss"] < steps[-1]["train/loss"], "after the last update, against the same reference"
