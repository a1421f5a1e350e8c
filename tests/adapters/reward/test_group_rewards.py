"""Components that see the whole group: what the trainer puts in the rows once a group is sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from samples import sample
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack

from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.rewards.verl_result import PENDING, PLACE, row_numbers, score_tokens, to_pending
from verl_agentic.verl.reward import group_rewards
from verl_agentic.verl.reward.group_rewards import GroupRewards

FILE = Path(__file__).parents[2] / "rewards" / "scorer_components.py"
SOLVED, RANK = {"use": f"{FILE}:solved"}, {"use": f"{FILE}:rank", "weight": 0.4}


class Queue:
    """Stands in for TransferQueue."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        assert partition_id == "train"
        columns: dict[str, Any] = {
            name: torch.nested.as_nested_tensor([self.rows[key][name] for key in keys], layout=torch.jagged)
            for name in select_fields
            if name not in ("extra_fields", GREEDY_SESSION)
        }
        if all(GREEDY_SESSION in self.rows[key] for key in keys):
            columns[GREEDY_SESSION] = torch.tensor([self.rows[key][GREEDY_SESSION] for key in keys])
        columns["extra_fields"] = NonTensorStack(*(self.rows[key]["extra_fields"] for key in keys))
        return TensorDict(columns, batch_size=[len(keys)])

    def kv_batch_put(self, *, keys: list[str], partition_id: str, fields: TensorDict) -> None:
        for name in list(fields.keys()):
            for key, value in zip(keys, list(fields[name]), strict=True):
                self.rows[key][name] = getattr(value, "data", value) if name == "extra_fields" else value


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(group_rewards.tq, "kv_batch_get", queue.kv_batch_get)
    monkeypatch.setattr(group_rewards.tq, "kv_batch_put", queue.kv_batch_put)
    return queue


async def stored(rubric: Rubric, subject: Sample) -> dict[str, Any]:
    """Returns an episode's row as the reward worker and the agent loop leave it: two turns of 2 and 3 tokens."""
    scorer = Scorer(rubric, workers=1)
    score, verdicts = await scorer.begin(subject)
    scorer.close()
    mask, turn_ids = [1, 1, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]
    paid = score_tokens(score, turn_ids=turn_ids, mask=mask, place="last")
    rewards = [a + b for a, b in zip([0.0, 0.5, 0, 0, 0, 0], paid, strict=True)]
    return {
        "extra_fields": {
            PENDING: to_pending(subject.to_dict(), verdicts),
            "reward_extra_info": {"num_turns": 2.0, **row_numbers(score)},
            "error": "",
            PLACE: "last",
        },
        "rm_scores": torch.tensor(rewards),
        "response_mask": torch.tensor(mask),
        "turn_ids": torch.tensor(turn_ids),
    }


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[GroupRewards] = []

    def make(settings: Any) -> GroupRewards:
        rewards = GroupRewards.of(settings)
        assert rewards is not None
        made.append(rewards)
        return rewards

    yield make
    for rewards in made:
        rewards.close()


def config(*components: dict[str, Any], **reward: Any) -> Any:
    section = {"reward_manager": {"name": "rubric"}, "rubric": {"components": list(components)}, **reward}
    return OmegaConf.create({"reward": section, "algorithm": {"filter_groups": {"enable": False}}})


async def fill(queue: Queue, rubric: Rubric, lengths: dict[str, int]) -> None:
    for key, length in lengths.items():
        subject = sample(["so", "7"], ground_truth="7", num_tokens=[1, length], id=key)
        queue.rows[key] = await stored(rubric, subject)


@pytest.mark.slow
def test_a_group_is_ranked_once_it_is_whole(queue: Queue, make: Any) -> None:
    rewards = make(config(SOLVED, RANK))
    rubric = Rubric.from_mapping({"components": [SOLVED, RANK]})
    # Two groups: ranks run inside each. The environment has paid 0.5 for the first turn, the answer earns 1.
    asyncio.run(fill(queue, rubric, {"a_0_0": 30, "a_1_0": 10, "a_2_0": 20, "b_0_0": 5, "b_1_0": 50}))
    assert queue.rows["a_1_0"]["rm_scores"].tolist() == [0, 0.5, 0, 0, 0, 1]
    rewards.score(list(queue.rows), "train")
    last = {key: row["rm_scores"].tolist()[-1] for key, row in queue.rows.items()}
    assert last == pytest.approx({"a_0_0": 1.0, "a_1_0": 1.4, "a_2_0": 1.2, "b_0_0": 1.4, "b_1_0": 1.0})
    assert all(row["rm_scores"].tolist()[:-1] == [0, 0.5, 0, 0, 0] for row in queue.rows.values())
    extra = queue.rows["a_2_0"]["extra_fields"]
    numbers = extra["reward_extra_info"]
    assert (numbers["reward/rank"], numbers["weighted/rank"], numbers["acc"]) == (0.5, pytest.approx(0.2), 1.0)
    assert numbers["num_turns"] == 2.0 and extra[PENDING] is None


@pytest.mark.slow
def test_a_greedy_baseline_is_judged_beside_its_siblings_and_they_without_it(queue: Queue, make: Any) -> None:
    rewards = make(config(SOLVED, RANK))
    rubric = Rubric.from_mapping({"components": [SOLVED, RANK]})
    asyncio.run(fill(queue, rubric, {"a_0_0": 30, "a_1_0": 20, "a_2_0": 10, "b_0_0": 30, "b_1_0": 10}))
    for key, row in queue.rows.items():
        row[GREEDY_SESSION] = 2 if key.startswith("a") else 1
    rewards.score(list(queue.rows), "train")
    last = {key: row["rm_scores"].tolist()[-1] for key, row in queue.rows.items()}
    # Two siblings rank 0 and 1 as if they were alone; the baseline is the shortest of three. One is compared with it.
    assert last == pytest.approx({"a_0_0": 1.0, "a_1_0": 1.4, "a_2_0": 1.4, "b_0_0": 1.0, "b_1_0": 1.4})
    assert all(row["extra_fields"][PENDING] is None for row in queue.rows.values())


def test_an_outcome_that_only_the_group_shows_is_not_void_before_that(queue: Queue, make: Any) -> None:
    ranked = {**RANK, "kind": "outcome", "weight": 1.0}
    rewards = make(config(ranked))
    asyncio.run(fill(queue, Rubric.from_mapping({"components": [ranked]}), {"a_0_0": 30, "a_1_0": 10}))
    assert queue.rows["a_1_0"]["response_mask"].any()
    rewards.score(list(queue.rows), "train")
    assert [queue.rows[key]["extra_fields"]["reward_extra_info"]["acc"] for key in ("a_0_0", "a_1_0")] == [0.0, 1.0]


@pytest.mark.slow
def test_a_group_that_cannot_be_judged_is_void(queue: Queue, make: Any) -> None:
    few = {"use": f"{FILE}:too_few", "weight": 0.4}
    rewards = make(config(SOLVED, few))
    asyncio.run(fill(queue, Rubric.from_mapping({"components": [SOLVED, few]}), {"a_0_0": 30, "a_1_0": 10}))
    rewards.score(list(queue.rows), "train")
    for row in queue.rows.values():
        assert not row["rm_scores"].any() and not row["response_mask"].any() and not row["loss_mask"].any()
        assert "1 verdicts for 2 samples" in row["extra_fields"]["error"]


def test_rubrics_without_such_components_and_other_managers_need_nothing() -> None:
    assert GroupRewards.of(config(SOLVED)) is None
    assert GroupRewards.of(config(SOLVED, RANK, reward_manager={"name": "naive"})) is None
