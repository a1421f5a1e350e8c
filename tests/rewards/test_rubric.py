"""A rubric is checked when it is read, and combines its parts as the vectors say."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.score import combine

HERE = __name__


@component(kind="outcome")
def solved(sample: Sample) -> float:
    raise NotImplementedError


@component(low=-1.0, high=1.0, kind="outcome")
def signed(sample: Sample) -> float:
    raise NotImplementedError


@component()
def form(sample: Sample) -> float:
    raise NotImplementedError


@component(low=-1.0, high=1.0)
def efficiency(sample: Sample, *, best: int = 1) -> float:
    raise NotImplementedError


@component(high=float("inf"))
def excess(sample: Sample) -> float:
    raise NotImplementedError


@component(info=("cost",))
def judged(sample: Sample) -> float:
    raise NotImplementedError


def use(name: str, **options: Any) -> dict[str, Any]:
    return {"use": f"{HERE}:{name}", **options}


def rubric(*entries: dict[str, Any], **options: Any) -> Rubric:
    return Rubric.from_mapping({"components": list(entries), **options})


CAPPED = (
    use("solved"),
    use("form", weight=0.2, cap=0.2),
    use("efficiency", weight=0.1, cap=0.1),
    use("excess", weight=-0.05, cap=0.2),
)


# V-COMPOSITE-CAP: outcome, format, tool efficiency, excess steps -> reward; uncapped (V-COMPOSITE), the last were -0.5.
@pytest.mark.parametrize(
    ("values", "total"),
    [((1, 1.0, 1.0, 0), 1.3), ((1, 0.5, -1.0, 4), 0.8), ((0, 1.0, 1.0, 0), 0.3), ((1, 0.0, 0.0, 30), 0.8)],
)
def test_capped_parts_add_up_as_in_the_vector(values: tuple[float, ...], total: float) -> None:
    names = ("solved", "form", "efficiency", "excess")
    score = combine(rubric(*CAPPED), {n: Graded(value=float(v)) for n, v in zip(names, values, strict=True)})
    assert score.total == pytest.approx(total) and score.acc == values[0]
    weighted = [score.numbers[f"weighted/{name}"] for name in names]
    assert sum(weighted) == pytest.approx(total)
    assert [score.numbers[f"reward/{name}"] for name in names] == list(values)


def test_the_share_of_the_outcome_is_that_of_the_vector() -> None:
    # V-OUTSHARE: 1 / (1 + .2 + .1 + .2) is fine, 1 / (1 + 1.2) is not.
    assert rubric(*CAPPED).outcome_share == pytest.approx(0.666667, abs=1e-6)
    with pytest.raises(ConfigError, match="'form'"):
        rubric(use("solved"), use("form", weight=1.2))


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([], "components"),
        ([use("form")], "no outcome"),
        ([{"weight": 1}], "'use'"),
        ([use("solved", wieght=2)], "rubric.components"),
        ([{"use": "no_such_component"}], "no_such_component"),
        ([{"use": "json:loads"}], "@component"),
        ([use("solved"), use("excess", weight=-0.05)], "'excess'"),
        ([use("solved"), use("efficiency", weight=0.5)], r"up to 0\.5 for a failure and down to -0\.5 for a success"),
        ([use("solved"), use("form", cap=0)], r"components\[1\].cap"),
        ([use("solved"), use("solved")], "'solved'"),
        ([use("solved"), use("form", weight=0.1, only_if={"shape": 1})], "shape"),
        ([use("solved", only_if={"form": 1}), use("form", weight=0.1, only_if={"solved": 1})], "depend on each other"),
        ([use("signed", weight=-1.0)], "weight"),
        # On rows of source b, the outcome is worth 0.05 and shaping 0.4.
        (
            [
                use("solved", data_sources=["a"]),
                use("judged", kind="outcome", weight=0.05, data_sources=["b"]),
                use("form", weight=0.4),
            ],
            r"0\.05",
        ),
        # A gate that nothing reaches tells no success from a failure.
        ([use("solved"), use("efficiency", weight=0.6, unless={"solved": 2.0})], "outcome"),
    ],
)
def test_a_rubric_that_cannot_work_is_refused_with_the_reason(entries: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        rubric(*entries)


def test_unknown_keys_and_values_of_the_rubric_itself_are_refused() -> None:
    with pytest.raises(ConfigError, match="'comps'"):
        Rubric.from_mapping({"comps": []})
    with pytest.raises(ConfigError, match="on_error"):
        rubric(use("solved"), on_error="ignore")
    with pytest.raises(ConfigError, match=r"rubric\.timeout_s"):
        rubric(use("solved"), timeout_s=0)
    for limit in ("4096", -1):
        with pytest.raises(ConfigError, match="mask_overlong"):
            rubric(use("solved"), mask_overlong=limit)
    with pytest.raises(ConfigError, match="mask_stops"):
        rubric(use("solved"), mask_stops=["timeout"])


def test_a_recipe_is_a_file_with_a_rubric(tmp_path: Path) -> None:
    section = {"components": [{"use": "math"}, {"use": "format", "weight": 0.1}]}
    for number, values in enumerate((section, {"rubric": section}, {"reward": {"rubric": section}, "trainer": {}})):
        (tmp_path / f"{number}.yaml").write_text(json.dumps(values))
        assert [term.name for term in Rubric.from_file(tmp_path / f"{number}.yaml").terms] == ["math", "format"]


def test_what_only_a_success_is_paid_cannot_override_the_outcome() -> None:
    # Ungated it could: a failure would earn 0.6, a success lose 0.6.
    gated = rubric(use("solved"), use("efficiency", weight=0.6, only_if={"solved": 1.0}))
    assert gated.terms[1].needs == {"solved"}
    with pytest.raises(ConfigError, match="outcome"):
        rubric(use("solved"), use("efficiency", weight=0.6, only_if={"solved": 0.5}))


def test_what_only_a_failure_costs_cannot_either() -> None:
    # D63: a penalty on failures alone. Without the gate a success could lose 0.6, a failure gain 0.6.
    assert rubric(use("solved"), use("efficiency", weight=0.6, unless={"solved": 1.0})).terms[1].needs == {"solved"}
    with pytest.raises(ConfigError, match="outcome"):
        rubric(use("solved"), use("efficiency", weight=0.6, unless={"form": 1.0}), use("form", weight=0.1))
    with pytest.raises(ConfigError, match="unless"):
        rubric(use("solved"), use("efficiency", weight=0.1, unless="solved"))


def test_acc_is_the_outcome_on_a_scale_of_0_to_1_whatever_its_range_and_weight() -> None:
    one = rubric(use("signed", weight=3.0), use("form", weight=0.1))
    for value, acc in ((-1.0, 0.0), (0.0, 0.5), (1.0, 1.0)):
        score = combine(one, {"signed": Graded(value=value), "form": Graded(value=1.0)})
        assert score.acc == acc and score.total == pytest.approx(3 * value + 0.1)
    # Two outcomes weigh in with their weights: (3 * 1 + 1 * 0) / 4.
    two = rubric(use("solved", weight=3.0), use("judged", kind="outcome"))
    assert combine(two, {"solved": Graded(value=1.0), "judged": Graded(value=0.0)}).acc == 0.75


def test_what_single_turns_earned_is_told_apart_and_is_part_of_the_total() -> None:
    both = rubric(use("solved"), use("form", weight=0.5, cap=0.25))
    # Raw 1.0 weighs 0.5 and is capped to 0.25: the turns share that as they shared the raw value.
    score = combine(both, {"solved": Graded(value=1.0), "form": Graded(value=1.0, turns={0: 0.75, 2: 0.25})})
    assert score.turn_rewards == {0: pytest.approx(0.1875), 2: pytest.approx(0.0625)}
    assert score.total == pytest.approx(1.25) and score.last == pytest.approx(1.0)


def test_an_abstention_is_no_0_and_without_any_outcome_the_sample_is_void() -> None:
    both = rubric(use("solved"), use("judged", weight=0.2))
    score = combine(both, {"solved": Graded(value=1.0), "judged": Graded()})
    assert (score.total, score.void, score.numbers["abstained/judged"]) == (1.0, None, 1.0)
    nothing = combine(both, {"solved": Graded(), "judged": Graded(value=1.0)})
    assert nothing.void is not None and "abstained" in nothing.void and nothing.total == 0.0
    assert nothing.numbers["scoring/abstained"] == 1.0


def test_every_sample_reports_the_same_keys() -> None:
    both = rubric(use("solved"), use("judged", weight=0.2))
    full = combine(both, {"solved": Graded(value=1.0), "judged": Graded(value=0.5, info={"cost": 3.0})})
    assert full.numbers["judged/cost"] == 3.0
    assert combine(both, {"solved": Graded(value=0.0), "judged": None}).numbers.keys() == full.numbers.keys()
    assert combine(both, {"solved": Graded(), "judged": None}).numbers.keys() == full.numbers.keys()


JUDGE = {"use": "judge", "options": {"endpoint": "http://127.0.0.1:1/v1", "models": ["a"]}}


def test_the_fallback_of_an_outcome_is_an_outcome_unless_it_says_otherwise() -> None:
    chain = [{**JUDGE, "name": "last", "fallback_for": "judge"}, {**JUDGE, "fallback_for": "math"}, {"use": "math"}]
    made = rubric(*chain)
    assert {term.name for term in made.outcomes} == {"math", "judge", "last"}
    assert made.term("judge").component.options["on_invalid"] == "zero", "the defaults of an outcome"
    said = {"math": Graded(), "judge": Graded(value=0.5), "last": None}
    assert (combine(made, said).acc, combine(made, said).void) == (0.5, None)
    shaped = rubric({"use": "math"}, {**JUDGE, "fallback_for": "math", "kind": "shaping", "cap": 0.2})
    assert [term.name for term in shaped.outcomes] == ["math"]
    other = rubric({"use": "math"}, {**JUDGE, "cap": 0.2}, {**JUDGE, "name": "b", "fallback_for": "judge", "cap": 0.2})
    assert [term.name for term in other.outcomes] == ["math"], "the fallback of shaping is shaping"


@pytest.mark.parametrize("name", ["solved", "judged", "excess"])
def test_a_held_out_grader_is_reported_and_changes_nothing(name: str) -> None:
    plain, held = rubric(use("solved")), rubric(use("solved"), {**use(name), "name": "holdout", "weight": 0})
    assert [term.name for term in held.outcomes] == ["solved"] and held.outcome_share == 1.0
    for outcome, graded in itertools.product((0.0, 1.0), (0.0, 1.0, None)):
        told = {"solved": Graded(value=outcome), "holdout": Graded(value=graded)}
        score, alone = combine(held, told), combine(plain, told)
        assert (score.total, score.acc, score.void) == (alone.total, alone.acc, None)
        assert score.numbers["reward/holdout"] == (graded or 0.0) and score.numbers["weighted/holdout"] == 0.0
    assert combine(held, {"solved": Graded(), "holdout": Graded(value=1.0)}).void, "it is no outcome"


def test_a_rubric_of_held_out_graders_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="outcome"):
        rubric(use("solved", weight=0))
