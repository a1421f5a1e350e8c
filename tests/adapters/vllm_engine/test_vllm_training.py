"""Whole runs of `main_ppo` with verl's own rollout on vLLM, on a CPU: `make test-vllm`.

Trainer and server must agree on the probability of every sampled token (`training/rollout_probs_diff_max`) in each step
that trains on rows of the newest weights. They do so only if each update of the weights has reached vLLM's kernels.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from searching import ROWS, SEARCH, make_searching_env
from transformers import AutoTokenizer
from verl_runs import Run, make_run

from verl_agentic.log.files.rows import write_rows
from verl_agentic.log.reader import load
from verl_agentic.verl.features import is_installed

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed("vllm"), reason="vLLM is not installed; run `make test-vllm`"),
]


def _run(folder: Path, player: Path, **settings: Any) -> Run:
    """Returns a run of three steps on vLLM, whose policy knows how to play."""
    run = make_run(folder)
    shutil.copytree(player, folder / "model", dirs_exist_ok=True)
    write_rows(ROWS, folder / "rows.jsonl")
    run.settings = {
        "+agentic": "cpu_vllm",
        "agentic.env": make_searching_env(folder),
        "agentic.limits.max_turns": 6,
        "agentic.log.dir": folder / "log",
        "data.max_prompt_length": 192,
        "data.max_response_length": 256,
        "actor_rollout_ref.rollout.n": 4,
        "trainer.total_training_steps": 3,
        **settings,
    }
    return run


def _check(steps: Sequence[dict[str, Any]]) -> None:
    """Checks that every step trained on rows of the newest weights, and that trainer and server agreed on them."""
    for step in steps:
        assert step.get("training/off_policy/trajectory_staleness/max", 0) == 0
        assert step["episode/void"] == 0 and step["actor/grad_norm"] > 0
        assert step["training/rollout_probs_diff_max"] < 1e-4, step["step"]
    assert steps[0]["episode/tool_calls"] > 1


def test_sync_trains_on_what_the_newest_weights_sampled_also_in_several_rows_of_an_episode(
    tmp_path: Path, chat_player: Path
) -> None:
    run = _run(
        tmp_path,
        chat_player,
        **{
            "agentic.compaction": "{strategy:drop_observations,keep_last:1,min_room_tokens:48}",
            "data.max_response_length": 128,
        },
    )
    steps = run.finish()
    assert [step["step"] for step in steps] == [1, 2, 3]
    _check(steps)
    assert steps[0]["episode/rows"] > 1


def test_weights_that_are_not_packed_again_are_noticed(
    tmp_path: Path, chat_player: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "stale_packing")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    run = _run(tmp_path, chat_player, **{"trainer.total_training_steps": 2})
    first, second = run.finish()
    _check([first])
    assert second["training/rollout_probs_diff_max"] > 1e-3


def test_colocate_async_with_lora_trains_on_what_the_newest_weights_sampled(tmp_path: Path, chat_player: Path) -> None:
    run = _run(
        tmp_path,
        chat_player,
        **{
            "trainer.v1.trainer_mode": "colocate_async",
            # Groups that began with older weights, and were aborted by their update, are dropped.
            "trainer.v1.sampler.max_off_policy_threshold": 1,
            "actor_rollout_ref.model.lora_rank": 8,
            "actor_rollout_ref.model.lora_alpha": 16,
            "actor_rollout_ref.model.target_modules": "all-linear",
        },
    )
    steps = run.finish()
    assert [step["step"] for step in steps] == [1, 2, 3]
    _check(steps)


def test_separate_async_trains_on_stop_texts_that_the_newest_weights_sampled(
    tmp_path: Path, tag_player: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # verl 0.9.1 fails where it logs that there is no server on the trainer's own rank.
    monkeypatch.setenv("VERL_LOGGING_LEVEL", "WARN")
    run = _run(
        tmp_path,
        tag_player,
        **{
            "agentic.protocol": tag_player.parent / "tags.yaml",
            "trainer.v1.trainer_mode": "separate_async",
            "trainer.v1.separate_async.parameter_sync_step": 1,
            "trainer.v1.sampler.max_off_policy_threshold": 1,
            # One server instead of two: none on the trainer's own rank.
            "actor_rollout_ref.hybrid_engine": False,
            "actor_rollout_ref.rollout.nnodes": 1,
            "actor_rollout_ref.rollout.n_gpus_per_node": 1,
        },
    )
    steps = run.finish()
    assert [step["step"] for step in steps] == [1, 2, 3]
    _check(steps)
    table = load(tmp_path / "log", ["step", "response_ids", "response_mask"])
    rows = table[table.step == 1]
    tokenizer: Any = AutoTokenizer.from_pretrained(tag_player)
    trained = [
        tokenizer.decode(ids[mask == 1]) for ids, mask in zip(rows.response_ids, rows.response_mask, strict=True)
    ]
    assert sum(SEARCH in text for text in trained) > len(trained) / 2, trained
