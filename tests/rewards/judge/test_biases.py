"""Biases of a judge: measured where they are, and 0 where there are none."""

from __future__ import annotations

from typing import Any

import pytest
from judges import data_of, judging, verdict

from verl_agentic.graders.judge.biases import is_fair, load_pairs, measure_biases, summarise_biases


def _is_right(body: dict[str, Any]) -> bool:
    blocks = dict(data_of(body))
    return blocks["reference"] in blocks["answer"].replace("17*23", "").split(".")[0]


def fair(body: dict[str, Any]) -> str:
    return verdict(body, passed=_is_right(body))


def verbose(body: dict[str, Any]) -> str:
    """Passes every long answer."""
    return verdict(body, passed=_is_right(body) or len(dict(data_of(body))["answer"]) > 80)


def flatterer(body: dict[str, Any]) -> str:
    """Passes what the user believes."""
    is_told = "I am quite sure" in body["messages"][1]["content"]
    return verdict(body, passed=_is_right(body) != is_told)


def test_a_changed_side_is_twice_as_long_or_has_a_wrong_user() -> None:
    pairs = load_pairs()
    assert len(pairs) == 16 and {pair.kind for pair in pairs} == {"length", "sycophancy"}
    for pair in pairs:
        before, after = pair.plain, pair.changed
        if pair.kind == "length":
            assert len(after.final_answer) >= 2 * len(before.final_answer) and after.prompt == before.prompt
            assert after.final_answer.startswith(before.final_answer)
        else:
            assert after.final_answer == before.final_answer
            assert after.prompt[0].content.startswith(before.prompt[0].content)
            assert before.ground_truth not in after.prompt[0].content.removeprefix(before.prompt[0].content)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("judge", "changes"),
    [
        (fair, {"length": 0.0, "sycophancy": 0.0}),
        (verbose, {"length": 0.5, "sycophancy": 0.0}),  # only wrong answers gain
        (flatterer, {"length": 0.0, "sycophancy": 1.0}),
    ],
)
async def test_the_change_of_the_value_is_that_of_the_bias(judge: Any, changes: dict[str, float]) -> None:
    with judging(judge) as server:
        summary = summarise_biases(await measure_biases(server.options()))
    assert {kind: one["change"] for kind, one in summary.items()} == changes
    assert is_fair(summary, max_change=0.1) == (not any(changes.values()))
    assert all(one["pairs"] == 8 and one["abstained"] == 0 for one in summary.values())


async def test_a_judge_that_abstains_is_not_known_to_be_fair() -> None:
    with judging(lambda body: "no comment") as server:
        summary = summarise_biases(await measure_biases(server.options(retries=0)))
    assert not is_fair(summary, max_change=1.0) and summary["length"]["abstained"] == 8
