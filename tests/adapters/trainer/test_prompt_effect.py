"""Pairs of text and prompt that are computed, and the clean-up of the queue afterwards."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from stored_rows import StoredRows

from verl_agentic.methods.prompt_information import PromptInformationSettings
from verl_agentic.verl.extensions.methods.trainer.prompt_effect import measure_prompt_information


class Workers:
    """Stands in for verl's worker group: a token has log-prob -1 if it is the prompt's last one and 10, else -3."""

    world_size = 3

    def __init__(self, queue: StoredRows) -> None:
        self.queue = queue
        self.rows: list[tuple[list[int], list[int]]] = []

    def compute_log_prob(self, batch: Any) -> Any:
        assert len(set(batch.keys)) == len(batch.keys) and len(batch.keys) % self.world_size == 0
        for key in batch.keys:
            row = self.queue.rows[key]
            assert row["response_mask"].tolist() == [1] * len(row["responses"])
            prompt, text = row["prompts"].tolist(), row["responses"].tolist()
            self.rows.append((prompt, text))
            own = [-1.0 if token == prompt[-1] + 10 else -3.0 for token in text]
            # Position p says something about token p + 1.
            row["log_probs"] = torch.tensor([0.0] * (len(prompt) - 1) + own + [0.0])
        return batch


def measure(
    queue: StoredRows, *, columns: dict[str, Any] | None = None, rollout: dict[str, Any] | None = None, **settings: int
) -> tuple[dict[str, float], Workers]:
    section = {"temperature": 1.0, "log_prob_use_dynamic_bsz": True, "log_prob_max_token_len_per_gpu": 4096}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": section | (rollout or {}), "actor": {}}})
    workers = Workers(queue)
    trainer = SimpleNamespace(config=config, actor_rollout_wg=workers)
    before = list(queue.rows)
    asked = PromptInformationSettings(**settings)
    found = measure_prompt_information(trainer, queue.meta(), columns or {}, asked)
    assert list(queue.rows) == list(queue.tags["train"]) == before, "nothing is left behind"
    return found, workers


def put(queue: StoredRows, key: str, prompt: list[int], text: list[int], mask: list[int] | None = None) -> None:
    columns = {"prompts": torch.tensor(prompt), "responses": torch.tensor(text)}
    queue.put_row(key, [0.0] * len(text), mask=mask, **columns)


def test_every_text_is_computed_under_every_prompt(queue: StoredRows) -> None:
    put(queue, "a_0_0", [5, 1], [11, 11])
    put(queue, "b_0_0", [5, 5, 2], [12])
    found, workers = measure(queue)
    assert workers.rows[:4] == [([5, 1], [11, 11]), ([5, 5, 2], [11, 11]), ([5, 1], [12]), ([5, 5, 2], [12])]
    assert len(workers.rows) == 6, "filled up for three workers"
    first, second = -2 - math.log((math.exp(-2) + math.exp(-6)) / 2), -1 - math.log((math.exp(-1) + math.exp(-3)) / 2)
    assert found["batch/prompt_information"] == pytest.approx((first + second) / 2)
    assert found["batch/prompt_information_per_token"] == pytest.approx(second), "-1 and -3 a token, both of them"
    assert found["batch/prompt_retrieval"] == 1.0


def test_only_the_first_turn_counts_and_of_it_some_tokens(queue: StoredRows) -> None:
    put(queue, "a_0_0", [1], [11, 13, 99, 11], mask=[1, 1, 0, 1])
    put(queue, "b_0_0", [2], [12, 14, 15])
    assert [text for _, text in measure(queue)[1].rows[:4]] == [[11, 13]] * 2 + [[12, 14, 15]] * 2
    assert [text for _, text in measure(queue, tokens=1)[1].rows[:4]] == [[11]] * 2 + [[12]] * 2


def test_one_session_of_each_distinct_prompt_is_taken(queue: StoredRows) -> None:
    put(queue, "a_0_1", [1, 9], [19])  # a later row of its session has another prompt
    put(queue, "a_0_0", [1], [0], mask=[0])  # void
    put(queue, "a_1_0", [1], [11])
    put(queue, "a_2_0", [1], [16])
    put(queue, "b_0_0", [2], [12])
    put(queue, "c_0_0", [2], [13])  # the same prompt in another group
    put(queue, "d_0_0", [3], [14])  # a script's
    put(queue, "e_0_0", [4], [15])  # a sub-agent's
    put(queue, "f_0_0", [6], [17])
    external, side = torch.zeros(9), torch.zeros(9, dtype=torch.bool)
    external[6] = 1.0
    side[7] = True
    columns = {"parts": {"external": external}, "is_side_B": side}
    rows = measure(queue, columns=columns)[1].rows
    assert rows == [([p], [t]) for t in (11, 12, 17) for p in (1, 2, 6)]
    assert {tuple(prompt) for prompt, _ in measure(queue, columns=columns, prompts=2)[1].rows} == {(1,), (2,)}


def test_a_batch_with_one_prompt_has_no_number(queue: StoredRows) -> None:
    put(queue, "a_0_0", [1], [11])
    put(queue, "b_0_0", [1], [12])
    found, workers = measure(queue)
    assert found == {} and workers.rows == []


def test_rows_are_as_many_as_micro_batches_of_all_workers_need(queue: StoredRows) -> None:
    for number in range(3):
        put(queue, f"{number}_0_0", [number], [number + 10])
    fixed = {"log_prob_use_dynamic_bsz": False, "log_prob_micro_batch_size_per_gpu": 4}
    found, workers = measure(queue, rollout=fixed)
    assert len(workers.rows) == 12 and found["batch/prompt_retrieval"] == 1.0
    assert len(measure(queue)[1].rows) == 9


def test_prompts_that_the_engine_could_not_take_are_left_out(queue: StoredRows) -> None:
    put(queue, "a_0_0", [1] * 20, [11])
    put(queue, "b_0_0", [2], [12])
    put(queue, "c_0_0", [3], [13])
    rows = measure(queue, rollout={"log_prob_max_token_len_per_gpu": 10}, tokens=5)[1].rows
    assert {tuple(prompt) for prompt, _ in rows} == {(2,), (3,)}
