"""A metric of a step with several updates is what its description says, whatever words are in its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.v1.utils import MetricsAggregator

import verl_agentic
from verl_agentic.base.metric import Metric, find_metric
from verl_agentic.sampling.gate import Decision, Group, Session
from verl_agentic.sampling.gating.gate_stats import GateStats
from verl_agentic.verl.extensions.monitoring.metric_joins import METRICS
from verl_agentic.verl.replay_buffer.episode_buffer import mean_numbers

WORDS = "Max_min_sum_total_terminal"
_OURS = re.compile(r"(episode|batch|credit|audit|health|time|tool_time|turn_time|curriculum|training/gate)/[\w/*]+")


def join(updates: Sequence[tuple[Mapping[str, float], int]]) -> dict[str, Any]:
    """Returns the metrics of a step, as verl's trainer joins them."""
    aggregator = MetricsAggregator()
    for metrics, num_rows in updates:
        aggregator.add_step_metrics(dict(metrics), sample_count=num_rows)
    return aggregator.get_aggregated_metrics()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_joined_by_its_description(metric: Metric) -> None:
    name = metric.name.replace("*", WORDS)
    known = find_metric(name, METRICS)
    assert known is not None
    # Rows weigh nothing: the first update has 3 episodes in 8 rows, the second one episode in 9.
    updates = [({"episode/episodes": 3.0, name: 1.0}, 8), ({"episode/episodes": 1.0, name: 5.0}, 9)]
    if name == "episode/episodes":
        updates = [({name: 1.0}, 8), ({name: 5.0}, 9)]
    assert join(updates)[name] == {"mean": 2.0, "sum": 6.0, "max": 5.0, "min": 1.0, "last": 5.0}[known.join]


_NAMES = ("stop/max_tokens", "terminal", "summarise", "total", "consumed", "acc", "weighted/min_len", "void")
_EPISODE = st.builds(
    lambda numbers, tools: {"reward_extra_info": numbers, "tool_counts": tools},
    st.dictionaries(st.sampled_from(_NAMES), st.sampled_from([0.0, 0.25, 1.0]), max_size=5).map(lambda n: n | {"a": 1}),
    st.dictionaries(st.sampled_from(["summarise", "max", "admin"]), st.integers(1, 3), max_size=2),
)


@given(st.lists(st.lists(_EPISODE, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_step_of_several_updates_has_the_numbers_of_all_its_episodes(updates: list[list[dict[str, Any]]]) -> None:
    whole = mean_numbers([episode for update in updates for episode in update])
    whole = {name: value for name, value in whole.items() if not name.startswith("episode/tool_")}
    # Rows of an update and its episodes are different numbers.
    found = join([(mean_numbers(update), 3 + place) for place, update in enumerate(updates)])
    assert {name: found[name] for name in whole} == pytest.approx(whole)
    assert {type(value) for value in found.values()} == {float}, "verl's logger of files writes no subclasses"


_SESSION = st.builds(Session, acc=st.sampled_from([0.0, 1.0]), num_tokens=st.integers(1, 9), is_void=st.booleans())
_GROUP = st.builds(lambda sessions: Group(uid="a", sessions=tuple(sessions)), st.lists(_SESSION, max_size=3))


@given(st.lists(st.lists(_GROUP, min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_step_of_several_updates_has_the_rates_of_all_judged_groups(updates: list[list[Group]]) -> None:
    whole = _gate_metrics([group for update in updates for group in update], batch_size=2 * len(updates))
    found = join([(_gate_metrics(update, batch_size=2), 7) for update in updates])
    assert {name: found[name] for name in whole} == pytest.approx(whole)


def _gate_metrics(groups: Sequence[Group], *, batch_size: int) -> dict[str, float]:
    stats = GateStats(["max_sum"])
    for group in groups:
        stats.record(group, Decision(group=group, gate="" if group.valid else "max_sum", sessions={"max_sum": 1}))
    metrics = {f"training/gate/{name}": value for name, value in stats.metrics(batch_size=batch_size).items()}
    metrics.pop("training/gate/length_acc_corr", None)  # no mean
    return metrics


def test_verls_metrics_and_steps_of_one_update_stay_as_they_are() -> None:
    one = {"actor/grad_norm": 3.0, "critic/score/max": 2.0, "perf/total_num_tokens": 7, "episode/stop/max_tokens": 0.1}
    assert join([(one, 4)]) == one
    assert join([({"critic/score/max": 1.0}, 4), ({"critic/score/max": 2.0}, 4)]) == {"critic/score/max": 2.0}


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), torch.tensor(0.5), True, None, "half", [1, 2], torch.ones(2)])
def test_an_update_may_have_no_number_for_a_metric(value: Any) -> None:
    number = float(value) if isinstance(value, float | np.number) or getattr(value, "shape", 0) == () else None
    number = 1.0 if value is True else number
    updates = [({"episode/episodes": 3, "episode/acc": value}, 8), ({"episode/episodes": 1, "episode/acc": 0.1}, 8)]
    expected = 0.1 if number is None else (3 * number + 0.1) / 4
    assert join(updates) == pytest.approx({"episode/episodes": 4.0, "episode/acc": expected})
    assert join(updates[:1]) == {"episode/episodes": 3.0, **({} if number is None else {"episode/acc": number})}


@pytest.mark.slow
def test_every_name_of_a_metric_in_the_package_has_a_description() -> None:
    names = sorted({name for path in Path(verl_agentic.__file__).parent.rglob("*.py") for name in _names(path)})
    without = [name for name in names if find_metric(name.replace("*", "x"), METRICS) is None]
    assert len(names) > 80 and not without


def _names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OURS.fullmatch(node.value):
            yield node.value
