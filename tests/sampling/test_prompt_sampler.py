"""The sampler: shares of draws, a floor under weights, the same sequence after a resume, groups tied to prompts."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.settings import read_settings
from verl_agentic.sampling.curriculum import CurriculumSettings
from verl_agentic.sampling.prompt_sampler import PromptColumns, PromptSampler, spread_draws


def sampler(
    name: str = "learnability",
    count: int = 8,
    *,
    block: int = 4,
    seed: int = 0,
    difficulty: list[float] | None = None,
    source: list[str] | None = None,
    rate: list[float] | None = None,
    rows_hash: str | None = None,
    **section: Any,
) -> PromptSampler:
    columns = PromptColumns(
        count=count,
        difficulty_N=None if difficulty is None else np.array(difficulty),
        source_N=None if source is None else np.array(source),
        pass_rate_N=None if rate is None else np.array(rate),
        rows_hash=rows_hash,
    )
    return PromptSampler(
        read_settings(CurriculumSettings, {"name": name, **section}, section="s"), columns, block=block, seed=seed
    )


def draws(of: PromptSampler, count: int) -> list[int]:
    return [of.draw() for _ in range(count)]


def play(of: PromptSampler, count: int) -> list[int]:
    """Draws a batch and reports outcomes that depend on the prompt alone."""
    drawn = draws(of, count)
    uids = [f"{of.rates.version}-{place}" for place in range(count)]
    assert of.tie(uids) == drawn
    of.report({uid: [float(prompt % 2), float(prompt % 3 == 0)] for uid, prompt in zip(uids, drawn, strict=True)})
    return drawn


def test_groups_are_tied_to_the_prompts_that_were_drawn_last() -> None:
    of = sampler("easy_to_hard", 4, difficulty=[1.0, 2.0, 3.0, 4.0])
    assert draws(of, 3) == [0, 1, 2]
    assert of.tie(["u", "v"]) == [1, 2]


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-3),
    count=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_a_prompt_that_is_due_x_times_comes_x_times_up_to_one(weights: list[float], count: int, seed: int) -> None:
    drawn = spread_draws(np.array(weights), count, np.random.default_rng(seed))
    due = count * np.array(weights) / sum(weights)
    found = np.bincount(drawn, minlength=len(weights))
    assert len(drawn) == count
    assert (np.abs(found - due) <= 1 + 1e-9).all()
    assert not found[np.array(weights) == 0].any()


def test_every_place_of_a_block_has_the_probabilities_of_the_weights() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    first = Counter(int(spread_draws(weights, 2, rng)[0]) for _ in range(4000))
    assert [first[i] / 4000 for i in range(4)] == pytest.approx(weights, abs=0.04)  # 5 standard errors
    pairs = {tuple(sorted(spread_draws(np.ones(6), 2, rng).tolist())) for _ in range(400)}
    assert len(pairs) == 15  # all pairs come: no prompt is bound to its neighbours


def test_draws_are_in_proportion_to_what_the_curriculum_says_and_the_floor_is_under_it() -> None:
    # Rates .5, 0, 1 and .25 have the weights .25, 0, 0 and .1875; a tenth of the draws is uniform.
    of = sampler(count=4, rate=[0.5, 0.0, 1.0, 0.25], prior_trials=0, floor=0.1, block=50)
    found = Counter(draws(of, 10_000))
    expected = [0.9 * w / 0.4375 + 0.025 for w in (0.25, 0.0, 0.0, 0.1875)]
    assert [found[i] / 10_000 for i in range(4)] == pytest.approx(expected, abs=0.012)


def test_without_a_floor_what_was_always_or_never_solved_would_not_come_again() -> None:
    rate = [0.5, 0.0, 1.0, 0.25]
    assert set(draws(sampler(count=4, rate=rate, prior_trials=0, floor=0.0), 1000)) == {0, 3}
    assert set(draws(sampler(count=4, rate=rate, prior_trials=0), 1000)) == {0, 1, 2, 3}


def test_weights_that_are_all_zero_draw_alike() -> None:
    found = Counter(draws(sampler(count=4, rate=[0.0] * 4, prior_trials=0, floor=0.0), 400))
    assert [found[i] for i in range(4)] == [100] * 4


def test_a_decision_against_prompts_has_no_floor() -> None:
    of = sampler("by_source", 4, source=["m", "c", "m", "c"], options={"stages": [{"sources": ["m"]}]}, floor=0.5)
    assert set(draws(of, 200)) == {0, 2}


def test_the_next_stage_begins_with_its_step_even_within_a_block() -> None:
    stages = [{"sources": ["m"], "steps": 3}, {"sources": ["c"]}]
    of = sampler("by_source", 4, source=["m", "c", "m", "c"], options={"stages": stages}, block=100)
    of.step = 3
    assert set(draws(of, 10)) == {0, 2}
    of.step = 4
    assert set(draws(of, 10)) == {1, 3}


def test_an_outcome_changes_the_very_next_draws() -> None:
    of = sampler(count=100, block=100, prior_trials=0, floor=0.0)
    first = of.draw()
    of.tie(["u"])
    of.report({"u": [0.0] * 8})
    assert first not in draws(of, 1000)


def test_a_batch_has_no_prompt_twice_by_chance() -> None:
    assert len(set(draws(sampler(count=40, block=32), 32))) == 32


def test_an_order_brings_every_prompt_once_an_epoch_and_loses_none_at_its_end() -> None:
    of = sampler("easy_to_hard", 5, difficulty=[3, 1, 2, 1, 0], block=4)
    assert draws(of, 12) == [4, 1, 3, 2, 0, 4, 1, 3, 2, 0, 4, 1]
    assert len(of) == 5


@pytest.mark.parametrize(
    ("name", "more"),
    [("easy_to_hard", {"difficulty": [3, 1, 2, 1, 0, 7, 9, 8]}), ("learnability", {}), ("failed_tasks", {})],
)
@pytest.mark.parametrize("played", [0, 3, 4, 6, 11])
def test_a_resumed_sampler_goes_on_with_the_same_prompts(name: str, more: dict[str, Any], played: int) -> None:
    of = sampler(name, **more)
    for count in (played // 2, played - played // 2):
        play(of, count)
    pending = draws(of, 2)
    of.tie(["a", "b"])
    state = pickle.loads(pickle.dumps(of.state_dict()))
    resumed = sampler(name, seed=99, **more)
    resumed.load_state_dict(state)
    for one in (of, resumed):
        one.report({"a": [1.0], "b": [0.0]})  # groups that were under way
    assert resumed.rates.mean_N.tolist() == of.rates.mean_N.tolist()
    assert set(np.flatnonzero(of.rates.groups_N)) >= set(pending)
    assert [play(resumed, 3) for _ in range(6)] == [play(of, 3) for _ in range(6)]


def test_a_resume_within_a_block_keeps_what_is_left_of_it() -> None:
    of, resumed = sampler(count=50, block=12), sampler(count=50, block=12, seed=99)
    first = draws(of, 3)
    resumed.load_state_dict(pickle.loads(pickle.dumps(of.state_dict())))
    rest = draws(of, 9)
    assert draws(resumed, 9) == rest
    assert len(set(first + rest)) == 12  # the queue of the saved sampler, not one drawn anew


def test_a_block_that_is_drawn_anew_ends_where_it_would_have_ended() -> None:
    for seed in range(5):
        of = sampler("failed_tasks", count=8, block=8, options={"delta": 0.0}, seed=seed)
        draws(of, 3)
        of.tie(["a", "b", "c"])
        of.report({"a": [1.0]})
        assert len(set(draws(of, 5))) == 5
        assert len(set(draws(of, 8))) == 8  # the next one is whole


def test_a_state_of_other_prompts_is_refused_and_one_of_another_curriculum_keeps_the_rates() -> None:
    of = sampler()
    play(of, 4)
    with pytest.raises(DataError, match="8 prompts"):
        sampler(count=9).load_state_dict(of.state_dict())
    with pytest.raises(DataError, match="other rows"):
        sampler(rows_hash="b").load_state_dict(sampler(rows_hash="a").state_dict())
    for known, found in (("a", "a"), ("a", None), (None, "a")):
        sampler(rows_hash=found).load_state_dict(sampler(rows_hash=known).state_dict())
    other = sampler("easy_to_hard", difficulty=[7, 6, 5, 4, 3, 2, 1, 0])
    other.load_state_dict(of.state_dict())
    assert other.rates.mean_N.tolist() == of.rates.mean_N.tolist()
    assert draws(other, 3) == [7, 6, 5]
    with pytest.raises(DataError, match=r"data\.curriculum\.task_set"):
        growing().load_state_dict(of.state_dict())


def test_groups_are_reported_once_and_unknown_or_void_ones_change_nothing() -> None:
    of = sampler()
    (prompt,) = draws(of, 1)
    of.tie(["u"])
    of.report({"u": [1.0, 0.0], "stranger": [1.0]})
    of.report({"u": [1.0, 1.0]})
    assert of.rates.groups_N[prompt] == 1 and of.rates.groups_N.sum() == 1
    draws(of, 1)
    of.tie(["v"])
    of.report({"v": []})
    assert of.rates.groups_N.sum() == 1 and of.state_dict()["in_flight"] == {}


def test_group_sizes_keep_the_sum_and_give_more_to_prompts_that_are_half_solved() -> None:
    of = sampler(count=4, rate=[0.5, 0.0, 1.0, 0.25], prior_trials=0, group_size={"least": 2, "most": 16})
    sizes = of.group_sizes([0, 1, 2, 3], group_size=8)
    # 24 more than 2 each, by the deviations .5, 0, 0 and .433: 12.86 and 11.14.
    assert sizes is not None and sizes.tolist() == [15, 2, 2, 13]
    assert sampler().group_sizes([0, 1], group_size=8) is None


def growing(**section: Any) -> PromptSampler:
    return sampler(task_set={"proposals": "p.jsonl", "check": "m:f", "patience": 1}, floor=0.0, **section)


def test_a_valid_proposal_is_in_the_next_batch_and_an_invalid_one_never() -> None:
    of = growing(count=4)
    draws(of, 2)
    assert of.propose({"q": "new"}, check=lambda row: True).place == 0
    assert of.propose({"q": "bad"}, check=lambda row: False).place is None
    assert draws(of, 1) == [4]
    assert set(draws(of, 400)) == {0, 1, 2, 3, 4}
    assert len(of) == 4  # verl's epochs stay what they are


def test_a_solved_proposal_leaves_and_the_rest_survives_a_resume() -> None:
    of = growing(count=4)
    for text in ("solved", "open"):
        of.propose({"q": text}, check=lambda row: True)
    assert draws(of, 2) == [4, 5]
    of.tie(["a", "b"])
    of.report({"a": [1.0, 1.0], "b": [1.0, 0.0]})
    resumed = growing(count=4)
    resumed.load_state_dict(pickle.loads(pickle.dumps(of.state_dict())))
    for one in (of, resumed):
        assert one.metrics()["curriculum/living_tasks"] == 1.0
    assert draws(resumed, 400) == draws(of, 400)
    assert set(draws(of, 400)) == {0, 1, 2, 3, 5}
    assert resumed.tasks is not None and resumed.tasks.rows == [{"q": "solved"}, {"q": "open"}]


def test_a_proposal_whose_value_is_out_of_bounds_is_not_drawn_again() -> None:
    tasks = {"proposals": "p.jsonl", "check": "m:f", "value_bounds": [0.05, 0.75]}
    of = sampler(count=2, task_set=tasks, floor=0.0)
    for text in ("easy", "fair"):
        of.propose({"q": text}, check=lambda row: True)
    assert draws(of, 2) == [2, 3]
    of.tie(["a", "b"])
    # With the prior's attempt at 1/2: 7.5 of 9, and 4.5 of 9.
    of.report({"a": [1.0] * 7 + [0.0], "b": [1.0] * 4 + [0.0] * 4})
    assert set(draws(of, 200)) == {0, 1, 3}


def test_a_proposal_takes_its_turn_in_an_order_and_its_share_of_a_source() -> None:
    of = growing(name="easy_to_hard", count=2, difficulty=[1.0, 2.0])
    of.propose({"q": 1}, check=lambda row: True, difficulty=1.5)
    assert draws(of, 7) == [2, 0, 2, 1, 0, 2, 1]
    mixed = growing(name="mix", count=2, source=["m", "m"], options={"ratios": {"m": 1.0}})
    mixed.propose({"q": 1}, check=lambda row: True, source="m")
    assert set(draws(mixed, 60)) == {0, 1, 2}


def test_missing_columns_are_told_before_the_first_step() -> None:
    with pytest.raises(ConfigError, match="'difficulty'"):
        sampler("easy_to_hard")
    with pytest.raises(ConfigError, match="the data have none of"):
        sampler("by_source", 2, source=["m", "m"], options={"stages": [{"sources": ["x"]}]})
