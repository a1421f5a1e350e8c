"""The choice among several episodes of a row: by answers alone, and counted per task."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message
from verl_agentic.evaluate.evaluation_run import attempts
from verl_agentic.evaluate.selection import SELECTED, highest_log_prob, select_episodes

ROWS = [EnvRow(prompt=(Message("user", f"q{i}"),), extra={"task_id": f"t{i}"}) for i in range(3)]
closed: list[str] = []


class Voting(ToolEnv):
    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [])

    async def select(self, answers: Sequence[str]) -> int | None:
        counts = Counter(answer for answer in answers if answer)
        return answers.index(counts.most_common(1)[0][0]) if counts else None

    async def close(self) -> None:
        closed.append(self.row.extra["task_id"])


def record(sample: int, answer: str, outcome: float, *, stop: str = "answered", void: bool = False) -> list[Any]:
    return [{"session": sample, "acc": outcome, "is_void": void, "final_answer": answer, "stop_reason": stop}]


def select(tmp_path: Path, records: list[list[Any]], make_env: Any = Voting) -> dict[str, Any]:
    plan = attempts(ROWS, 3)
    return asyncio.run(select_episodes(plan, records, make_env=make_env, out=tmp_path, max_concurrent=2))


def test_the_chosen_episodes_count_and_a_task_without_a_choice_fails(tmp_path: Path) -> None:
    closed.clear()
    records = [
        *(record(0, "a", 0.0), record(0, "", 0.0), record(0, "x", 1.0, stop="max_tokens")),
        *(record(1, "b", 1.0), record(1, "", 0.0), record(1, "z", 0.5)),
        *(record(2, "b", 1.0), record(2, "y", 0.0, void=True), record(2, "x", 1.0, stop="max_tokens")),
    ]
    figure = select(tmp_path, records)
    assert figure["mean"] == pytest.approx(1 / 3) and "ci95" in figure
    lines = [json.loads(line) for line in (tmp_path / SELECTED).read_text().splitlines()]
    chosen = [(line["task_id"], line["sample"], line["outcome"], line["candidates"]) for line in lines]
    assert chosen == [("t0", 1, 1.0, 3), ("t1", None, 0.0, 2), ("t2", 1, 0.5, 3)]
    assert sorted(closed) == ["t0", "t1", "t2"]


def test_an_environment_that_cannot_select_is_refused(tmp_path: Path) -> None:
    records = [record(0, "a", 0.0) for _ in range(9)]
    with pytest.raises(ConfigError, match="needs an environment with select"):
        select(tmp_path, records, make_env=lambda row: ToolEnv(row, []))


def test_without_episodes_there_is_no_figure(tmp_path: Path) -> None:
    assert select(tmp_path, [record(0, "", 0.0, void=True) for _ in range(9)]) == {}


@pytest.mark.parametrize(("bonus", "chosen"), [(0.0, [1, 1, 1]), (5.0, [0, 0, 0])])
def test_the_episode_with_the_highest_log_prob_and_value_is_chosen(
    tmp_path: Path, bonus: float, chosen: list[int]
) -> None:
    # The masked log-prob must not count; without a value, the model's most likely candidate is chosen.
    records = [
        [{**record(sample, "abc"[sample], 0.0)[0], "rollout_log_probs": [p, 9.0], "response_mask": [1, 0],
          "response_ids": [7, 8]}]
        for sample, p in enumerate((-3.0, -1.0, -2.0)) for _ in ROWS
    ]  # fmt: skip

    async def value(messages: Sequence[Message], answer: str) -> float:
        assert messages[0].content.startswith("q")
        return bonus * (answer == "a")

    plan = attempts(ROWS, 3)
    asyncio.run(
        select_episodes(plan, records, make_env=Voting, out=tmp_path, max_concurrent=2, choose=highest_log_prob(value))
    )
    lines = [json.loads(line) for line in (tmp_path / SELECTED).read_text().splitlines()]
    assert [line["sample"] for line in lines] == chosen
    records[0][0]["rollout_log_probs"] = []
    with pytest.raises(ConfigError, match="--rank needs the log-probs"):
        asyncio.run(
            select_episodes(
                plan, records, make_env=Voting, out=tmp_path, max_concurrent=2, choose=highest_log_prob(value)
            )
        )
