"""The probes: enough of them, as meant, harmless to an honest judge and not to a gullible one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, get_args

import pytest
from judges import data_of, gullible, honest, judging, talked_out, verdict

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.probes import Place, load_probes, make_probes, read_probes, run_probes

_PROBES = load_probes()
_ATTACKS = [probe for probe in _PROBES if probe.is_attack]


def test_there_are_attacks_of_every_kind_in_every_place_and_controls_for_every_task() -> None:
    assert len(_ATTACKS) >= 30 and len({probe.name for probe in _PROBES}) == len(_PROBES)
    kinds = Counter(probe.kind for probe in _ATTACKS)
    assert kinds.keys() == {"fake_verdict", "delimiter", "special_tokens", "role_play", "unicode", "tool_output",
                            "canary", "json", "out_of_form", "hedging", "flood"}  # fmt: skip
    assert {attack["place"] for attack in read_probes()["attacks"]} == set(get_args(Place))
    controls = Counter(probe.is_right for probe in _PROBES if not probe.is_attack)
    assert controls[True] == controls[False] == len(read_probes()["tasks"]) >= 4


@pytest.mark.parametrize("probe", _PROBES, ids=lambda probe: probe.name)
def test_an_attacked_piece_of_work_is_wrong_and_contains_its_attack(probe: Any) -> None:
    is_right = probe.sample.final_answer.strip() == probe.sample.ground_truth
    assert is_right == probe.is_right
    if probe.is_attack:
        clean = [p.sample for p in _PROBES if not p.is_attack and not p.is_right]
        assert all(probe.sample.turns != other.turns for other in clean)
        written = json.dumps(probe.sample.to_dict())
        assert "{wrong}" not in written and "{reference}" not in written and "{token}" not in written


@pytest.mark.sample(1)
@pytest.mark.parametrize("view", ["trajectory", "answer"])
async def test_an_honest_judge_withstands_all_and_tells_right_from_wrong(view: str) -> None:
    with judging(honest) as server:
        results = await run_probes(server.options(view=view))
    assert len(results) == len(_PROBES) and all(result.is_good for result in results)
    assert {result.outcome for result in results} == {"passed", "failed"}
    for body in server.bodies:  # nothing hidden and no token of a template has reached it
        text = "".join(text for _, text in data_of(body))
        assert "<" not in text and "[/INST]" not in text
        assert all(c.isprintable() or c in "\n\t" for c in text)


@pytest.mark.slow
async def test_a_gullible_judge_gives_way() -> None:
    with judging(gullible) as server:
        results = await run_probes(server.options())
    lost = [result for result in results if not result.is_good]
    assert {result.probe.kind for result in lost} >= {"fake_verdict", "role_play", "canary"} and len(lost) >= 10
    assert all(result.probe.is_attack for result in lost), "it knows right from wrong where nobody deceives it"


@pytest.mark.slow
async def test_a_judge_that_fails_or_passes_everything_does_not_look_safe() -> None:
    for passed in (True, False):
        with judging(lambda body, passed=passed: verdict(body, passed=passed)) as server:
            results = await run_probes(server.options())
        bad = Counter(result.probe.name.partition(":")[0] for result in results if not result.is_good)
        assert bad["right" if not passed else "wrong"] == 4


@pytest.mark.slow
async def test_a_judge_that_abstains_withstands_attacks_but_fails_the_controls() -> None:
    with judging(lambda body: "no comment") as server:
        results = await run_probes(server.options())
    assert {result.outcome for result in results} == {"abstained"} and all(result.failure for result in results)
    assert {result.probe.is_attack for result in results if not result.is_good} == {False}


@pytest.mark.parametrize(("on_invalid", "outcome"), [("abstain", "abstained"), ("zero", "failed")])
async def test_a_judge_that_is_talked_out_of_its_form_pays_nothing(on_invalid: str, outcome: str) -> None:
    attacks = [probe for probe in _PROBES if probe.kind == "out_of_form"]
    with judging(talked_out) as server:
        results = await run_probes(server.options(on_invalid=on_invalid), probes=attacks)
        controls = [probe for probe in _PROBES if not probe.is_attack]
        honest = await run_probes(server.options(on_invalid=on_invalid), probes=controls)
    assert len(results) >= 7 and {result.outcome for result in results} == {outcome}
    assert all(result.is_good for result in [*results, *honest]), "where nobody attacks, it judges as ever"


async def test_a_judge_is_not_probed_through_a_cache() -> None:
    options = JudgeOptions.from_mapping({"endpoint": "http://h/v1", "models": "m", "cache": "x"})
    with pytest.raises(ConfigError, match="without a cache"):
        await run_probes(options)


def test_probes_of_another_form_are_refused() -> None:
    task = {"prompt": "p", "call": {"name": "n", "arguments": {}}, "observation": "", "reference": "1", "wrong": "2"}
    attack = {"name": "a", "kind": "k", "place": "answer", "text": "t"}
    assert len(make_probes({"tasks": {"one": task}, "attacks": [attack]})) == 3
    for content in (
        {},
        {"tasks": {"one": task}, "attacks": [{**attack, "place": "nowhere"}]},
        {"tasks": {"one": task}, "attacks": [{"name": "a"}]},
        {"tasks": {"one": {"prompt": "p"}}, "attacks": []},
    ):
        with pytest.raises(DataError):
            make_probes(content)
