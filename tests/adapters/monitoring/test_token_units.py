"""Entropy and KL are in nats per sampled token, also in batches with void rows and padding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from queues import Queue, install
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo import core_algos

from verl_agentic.credit.batch_metrics.token_means import token_means
from verl_agentic.verl.extensions.monitoring import token_units

CONFIG = OmegaConf.create({"algorithm": {}})


def report(
    monkeypatch: pytest.MonkeyPatch, rows: dict[str, list[int]], *, config: Any = CONFIG, lost: str = "", **nats: float
) -> dict[str, Any]:
    """Returns the metrics of rows with these masks; masked-out positions hold garbage."""
    queue, batch = Queue(), KVBatchMeta(keys=list(rows), tags=[{} for _ in rows], partition_id="train")
    install(queue, monkeypatch)
    for place, (key, mask) in enumerate(rows.items()):
        batch.tags[place]["is_padding"] = key.startswith("pad")
        sampled = torch.tensor(mask)
        columns = {
            "old_log_probs": -1.0,
            "ref_log_prob": -1.0 - nats.get("log_ratio", 0.0),
            "entropy": nats.get("entropy", 1),
        }
        queue.rows[key] = {name: torch.where(sampled > 0, value, 777.0) for name, value in columns.items()}
        queue.rows[key]["response_mask"] = sampled
        queue.rows[key].pop(lost, None)
    metrics: dict[str, Any] = {}
    trainer: Any = type("Trainer", (), {"config": config})()
    token_units._report_token_means(lambda self, batch, metrics: batch, trainer, batch, metrics)
    return metrics


ROWS = {
    "a_0_0": [1] * 300,
    "a_1_0": [1, 0, 1],
    "a_2_0": [0] * 50,  # void
    "pad_0_0": [0] * 128,
    "b_0_0": [1],
}


@pytest.mark.parametrize("rows", [ROWS, {"a_0_0": [1] * 5}, {"a_0_0": [0, 1], "a_1_0": [0] * 800}])
def test_the_numbers_are_those_of_a_token(monkeypatch: pytest.MonkeyPatch, rows: dict[str, list[int]]) -> None:
    found = report(monkeypatch, rows, entropy=0.5, log_ratio=0.2)
    assert found == pytest.approx({"batch/entropy": 0.5, "batch/ref_kl": math.exp(-0.2) - 1 + 0.2}, rel=1e-4)
    assert {value.count for value in found.values()} == {sum(map(sum, rows.values()))}


@pytest.mark.parametrize("seed", range(3))
def test_the_kl_is_that_of_the_distributions(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    log_p_V, log_q_V = ((0.4 * torch.randn(5, generator=draw)).log_softmax(dim=0) for _ in range(2))
    sampled_T = torch.multinomial(log_p_V.exp(), 40_000, replacement=True, generator=draw)
    found = token_means(
        torch.ones(1, 40_000, dtype=torch.bool),
        log_prob_BT=log_p_V[sampled_T].unsqueeze(0),
        ref_log_prob_BT=log_q_V[sampled_T].unsqueeze(0),
    )
    assert found == pytest.approx({"batch/ref_kl": float((log_p_V.exp() * (log_p_V - log_q_V)).sum())}, rel=0.1)


def test_what_is_not_known_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(report(monkeypatch, ROWS, lost="ref_log_prob")) == {"batch/entropy"}
    assert set(report(monkeypatch, ROWS, lost="entropy")) == {"batch/ref_kl"}  # rollout_correction.bypass_mode
    assert report(monkeypatch, {"a_0_0": [0, 0]}) == {}
    implicit = OmegaConf.create({"algorithm": {"implicit_reward": {"beta": 0.1}}})
    assert set(report(monkeypatch, ROWS, config=implicit)) == {"batch/entropy"}, "the reference is a reward model"


@pytest.mark.parametrize("num_void", [0, 1, 3])
def test_void_rows_and_padding_do_not_dilute_the_penalty_and_its_controller(num_void: int) -> None:
    mask_BT = torch.tensor([[1, 1, 0], [1, 0, 0], *([[0, 0, 0]] * num_void)])
    columns = {"response_mask": mask_BT, "token_level_scores": torch.zeros(mask_BT.shape)}
    columns |= {"old_log_probs": torch.zeros(mask_BT.shape), "ref_log_prob": torch.full(mask_BT.shape, -0.2)}
    data = DataProto(batch=TensorDict(columns, batch_size=len(mask_BT)))
    apply_kl_penalty: Any = token_units.trainer_base.__dict__["apply_kl_penalty"]
    control = core_algos.AdaptiveKLController(init_kl_coef=0.5, target_kl=0.2, horizon=10)
    data, metrics = apply_kl_penalty(data, kl_ctrl=control, kl_penalty="kl")
    assert metrics == pytest.approx({"actor/reward_kl_penalty": 0.2, "actor/reward_kl_penalty_coeff": 0.5})
    assert control.value == pytest.approx(0.5), "the KL is at its target"
    assert data.batch["token_level_rewards"].tolist() == (-0.5 * 0.2 * mask_BT).tolist()
