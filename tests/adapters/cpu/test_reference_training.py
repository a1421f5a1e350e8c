"""DPO, implicit reward models and SFT on exported rows with verl's SFT trainer, as a user would start them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from run_logs import log_row
from transformers import AutoModelForCausalLM
from verl_runs import run_ranks

from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.data.export.export_run import ExportOptions, export_run
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.record_files import numbered_records, write_json_lines
from verl_agentic.log.files.rows import write_rows
from verl_agentic.log.reader import write_run

pytestmark = pytest.mark.slow
_RECIPE = """
hydra:
  searchpath: [pkg://verl_agentic.config]
  output_subdir: null
  run: {dir: .}
defaults: [sft_trainer_engine, agentic/tiny_sft, _self_]
data: {train_batch_size: 4, micro_batch_size_per_gpu: 1, max_length: 128}
optim: {lr: 1.0e-3, lr_warmup_steps: 0, weight_decay: 0.0}
trainer: {logger: [file], project_name: test, experiment_name: test, total_training_steps: 5}
checkpoint: {save_contents: [model, hf_model]}
"""

ONE_GPU = ("+agentic=one_gpu_sft", "trainer.device=cpu")
"""Rehearses the configuration of a GPU."""


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


def played(number: int) -> dict[str, Any]:
    """Every other trajectory asks the tool, and has success."""
    sides, is_success = pair(number), number % 2 == 0
    messages = sides["chosen" if is_success else "rejected"]
    return {"prompt": sides["prompt"], "messages": messages, "outcome": float(is_success)}


def train(folder: Path, module: str, rows: Iterable[dict[str, Any]], option: str) -> list[dict[str, Any]]:
    """Trains five steps on rows of messages, and returns what is logged."""
    make_tiny_model(folder / "model", seed=0)
    write_json_lines(rows, folder / "rows.jsonl")
    return train_on(folder / "rows.jsonl", folder, module, f"+{option}")


def train_on(file: Path, folder: Path, module: str, *more: str) -> list[dict[str, Any]]:
    """Trains five steps on two ranks, and returns what is logged."""
    (folder / "run.yaml").write_text(_RECIPE)
    overrides = [
        *("--config-dir", str(folder), "--config-name", "run"),
        f"model.path={folder / 'model'}",
        f"data.train_files={file}",
        f"data.val_files={file}",
        f"trainer.default_local_dir={folder / 'out'}",
        *more,
    ]
    run_ranks([module, *overrides], folder, VERL_FILE_LOGGER_PATH=str(folder / "metrics.jsonl"))
    return [json.loads(line)["data"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def exported(folder: Path, shape: str) -> Path:
    """Makes a model and a log of its rollouts, and exports it; those that end with `1` have success."""
    make_tiny_model(folder / "model", seed=0)
    log = [
        log_row(session, [([20 + prompt, 30], [40, 41]), ([50 + session % 2], [])], uid=f"g{prompt}", acc=session % 2,
                prompt_ids=[5, 6, 7 + prompt])
        for prompt in range(8)
        for session in range(2)
    ]  # fmt: skip
    where = "acc >= 1" if shape == "sft" else None
    path = folder / f"{shape}.parquet"
    export_run(write_run(folder / "log", trajectories=log), path, ExportOptions(shape=shape, where=where))
    return path


def mean_log_prob(model: Path, rows: Sequence[dict[str, Any]]) -> float:
    """Returns the mean log-prob of the trained tokens of SFT rows."""
    loaded, found = AutoModelForCausalLM.from_pretrained(model), []
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            log_probs = loaded(ids).logits[0].float().log_softmax(-1)
        found += [log_probs[n - 1, row["input_ids"][n]] for n, bit in enumerate(row["loss_mask"]) if bit]
    return float(torch.stack(found).mean())


def check_learnt(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the steps; the loss has fallen from that of a model that is its own reference."""
    steps = [record for record in records if "train/loss" in record]
    assert len(steps) == 5
    assert steps[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert steps[-1]["train/accuracy"] == 1 and steps[-1]["train/loss"] < 0.6
    assert records[-1]["val/loss"] < 0.6, "against the same reference"
    return steps


def test_pairs_raise_the_margin_of_the_chosen(tmp_path: Path) -> None:
    steps = check_learnt(
        train(tmp_path, "verl_agentic.verl.extensions.offline.dpo_trainer", map(pair, range(10, 18)), "dpo.beta=0.5")
    )
    assert steps[0]["train/margin"] == pytest.approx(0, abs=1e-4)
    assert steps[-1]["train/margin"] > 0.5


def test_outcomes_make_a_reward_model_that_tells_them_apart(tmp_path: Path) -> None:
    rows = map(played, range(10, 18))
    check_learnt(
        train(tmp_path, "verl_agentic.verl.extensions.offline.outcome_trainer", rows, "implicit_reward.beta=0.5")
    )
    # What the section `algorithm.implicit_reward` loads: what transformers does not find it makes up.
    saved, loading = AutoModelForCausalLM.from_pretrained(
        tmp_path / "out" / "global_step_5" / "huggingface", output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    first = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    steps = [(saved.get_parameter(name) - weight).abs().max() for name, weight in first.named_parameters()]
    # Five steps of AdamW with a rate of 0.001; weights are drawn with a deviation of 0.06 and more.
    assert 0 < max(steps) < 0.02


def test_rows_with_the_log_probs_of_their_author_are_learnt_by_weight(tmp_path: Path) -> None:
    row = {"prompt_ids": [5, 6], "response_ids": [7, 8, 9], "response_mask": [1, 0, 1], "turn_ids": [0, 0, 1],
           "rollout_log_probs": [-0.1, 0.0, -0.1]}  # fmt: skip
    module = "verl_agentic.verl.extensions.offline.pear_trainer"
    steps = [r for r in train(tmp_path, module, [row] * 8, "pear.gamma=1.0") if "train/loss" in r]
    # The untrained model is less sure than the author: the first token's weight is the minimum ratio.
    assert steps[0]["train/pear_weight"] == pytest.approx((0.5 + 1.0) / 2, abs=1e-4)
    assert steps[-1]["train/loss"] < 0.9 * steps[0]["train/loss"]


def test_a_warm_start_ends_on_all_ranks_once_it_stops_to_improve(tmp_path: Path) -> None:
    path = exported(tmp_path, "sft")
    rows = load_env_package("python_math").make_rows
    assert rows is not None
    write_rows(rows(split="train", count=2, seed=0), tmp_path / "tasks.jsonl")
    section = {"rows": tmp_path / "tasks.jsonl", "env": "python_math", "tasks": 2, "samples": 2, "patience": 1,
               "limits": "{max_response_tokens: 16, max_context_tokens: 400}"}  # fmt: skip
    overrides = [f"+warm_start.{name}={value}" for name, value in section.items()]
    module = "verl_agentic.verl.extensions.offline.warm_start_trainer"
    steps = train_on(path, tmp_path, module, "trainer.save_freq=1", *overrides)
    record = json.loads((tmp_path / "out" / "warm_start.json").read_text())
    # The untrained model solves nothing in 16 tokens: the second check does not improve on the first one.
    assert (record["chosen"], [check["step"] for check in record["checks"]]) == (1, [1, 2])
    assert "pass@2" in record["stopped"] and record["checks"][0]["entropy"] > 1.0
    assert len([step for step in steps if "train/loss" in step]) == 2, "five steps were configured"


@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("group", [(), ONE_GPU], ids=["cpu", "one_gpu"])
def test_sft_on_exported_successes_raises_their_likelihood_and_observations_are_not_learnt(
    group: tuple[str, ...], tmp_path: Path
) -> None:
    path = exported(tmp_path, "sft")
    rows = [row for _, row in numbered_records(path)]
    assert len(rows) == 8 and all(row["loss_mask"] == [0, 0, 0, 1, 1, 0, 0, 1] for row in rows)
    masked = [{**row, "loss_mask": [0, 0, 0, 0, 0, 1, 1, 0]} for row in rows]
    train_on(path, tmp_path, "verl.trainer.sft_trainer", *group)
    after = tmp_path / "out" / "global_step_5" / "huggingface"
    gain, others = (mean_log_prob(after, each) - mean_log_prob(tmp_path / "model", each) for each in (rows, masked))
    assert gain > 0.5 > others


@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("group", [(), ONE_GPU], ids=["cpu", "one_gpu"])
def test_exported_pairs_are_learnt_like_those_of_messages(group: tuple[str, ...], tmp_path: Path) -> None:
    path = exported(tmp_path, "pairs")
    check_learnt(train_on(path, tmp_path, "verl_agentic.verl.extensions.offline.dpo_trainer", "+dpo.beta=0.5", *group))
