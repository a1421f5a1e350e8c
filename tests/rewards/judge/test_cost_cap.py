"""The cap on the cost of judges: it pauses them, says so, and holds for all processes and for a resumed run."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from judges import JudgeServer, honest, judging
from samples import sample

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.judge.cost_cap import CostCap
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import Ruling, rule
from verl_agentic.graders.models.quote import blocks_of

PRICES = {"input_price": 1.0, "output_price": 10.0}
"""A verdict of the fake judge has 1,000 and 100 tokens, so it costs 0.002."""


async def ask(server: JudgeServer, path: Path, *, question: str = "2+2?", **options: Any) -> Ruling:
    blocks = blocks_of(sample("4", prompt=question, ground_truth="4"))
    return await rule(blocks, server.options(cost_file=str(path), **{"max_cost": 0.005, **PRICES, **options}))


async def test_judges_that_cost_too_much_are_paused_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run" / "judge_cost"
    with judging(honest) as server, caplog.at_level(logging.WARNING):
        rulings = [await ask(server, path) for _ in range(5)]
    assert [ruling.value for ruling in rulings] == [1.0, 1.0, 1.0, None, None] and len(server.bodies) == 3
    assert [ruling.costs.paused for ruling in rulings] == [0, 0, 0, 1, 1]
    assert rulings[3].to_graded().info["judge_paused"] == 1.0 and "max_cost" in rulings[3].failures[0]
    (warning,) = [record.message for record in caplog.records if "paused" in record.message]
    assert "0.006" in warning and "0.005" in warning and str(path) in warning


async def test_a_higher_cap_continues_a_paused_run(tmp_path: Path) -> None:
    path = tmp_path / "judge_cost"
    with judging(honest) as server:
        for _ in range(4):
            await ask(server, path)
        assert (await ask(server, path, max_cost=0.007)).value == 1.0
        assert (await ask(server, path, max_cost=0.007)).value is None
    assert float(path.read_text()) == pytest.approx(0.008)


async def test_a_cached_verdict_is_given_while_the_judges_are_paused(tmp_path: Path) -> None:
    path, cache = tmp_path / "judge_cost", str(tmp_path / "cache")
    with judging(honest) as server:
        await ask(server, path, cache=cache, max_cost=0.001)
        repeated = await ask(server, path, cache=cache, max_cost=0.001)
        other = await ask(server, path, cache=cache, max_cost=0.001, question="2+2, please?")
    assert (repeated.value, other.value) == (1.0, None)


async def test_each_node_has_its_share(tmp_path: Path) -> None:
    with judging(honest) as server:
        rulings = [await ask(server, tmp_path / "cost", max_cost=0.008, nodes=4) for _ in range(3)]
    assert [ruling.value for ruling in rulings] == [1.0, None, None]


def test_no_cost_is_lost_between_concurrent_writers(tmp_path: Path) -> None:
    caps = [CostCap(tmp_path / "cost", max_cost=1.0) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda cap: [cap._add(0.25) for _ in range(50)], caps))
    assert float((tmp_path / "cost").read_text()) == 50.0


@pytest.mark.parametrize(
    ("options", "key"),
    [({"max_cost": 1.0, **PRICES}, "cost_file"), ({"max_cost": 1.0, "cost_file": "f"}, "input_price")],
)
def test_a_cap_that_cannot_act_is_refused(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        JudgeOptions.from_mapping({"endpoint": "http://127.0.0.1:1/v1", "models": "m", **options})
