"""Properties of every estimator, ours and verl's, under our trainers and verl's, for sessions of any rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stories import Story, advantages_of, batch_of, changed
from verl.trainer.ppo.core_algos import AdvantageEstimator

from verl_agentic.credit.advantage import advantage_names, load_advantage
from verl_agentic.verl.trainer.advantages import WHITENED

HANDED_OVER = {"gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}
VERLS = {estimator.value for estimator in AdvantageEstimator}
TOLD_BY_VERL = {"values_BT", "old_log_probs_BT", "rollout_log_probs_BT"}
OURS_WITHOUT = {name for name in advantage_names() if load_advantage(name).needs <= TOLD_BY_VERL}
CASES = [
    *((name, True) for name in sorted({*advantage_names(), *VERLS})),
    *((name, False) for name in sorted(OURS_WITHOUT | (VERLS - HANDED_OVER))),
]
"""Estimator, and whether a trainer of ours hands over what verl's does not."""
CRITICS = {name for name in advantage_names() if load_advantage(name).needs_critic} | {"gae"}
NOT_COMPARING = CRITICS | {"monte_carlo", "reinforce_plus_plus", "remax", "safe_remax"}
"""Groups play no role."""
AVERAGES = {
    *(
        "arpo",
        "batch_baseline",
        "dr_grpo",
        "hierarchical",
        "safe_rloo",
        "salt",
        "spa",
        "token_baseline",
    ),
    *("turn_group", "per_use", "opo", "grpo", "rloo", "rloo_vectorized", "optimal_token_baseline"),
    "tir_optimal_token_baseline",
}
"""Nothing but an average of returns is taken off."""
BASE_OPTIONS: dict[str, dict[str, Any]] = {name: {"base": "dr_grpo"} for name in ("arpo", "salt", "per_use")}
OF_SESSIONS = {
    *("batch_baseline", "dr_grpo", "lite_ppo", "safe_gdpo", "safe_grpo", "safe_passk", "safe_remax"),
    *("safe_rloo", "per_use", "gpg", "grpo", "grpo_passk", "grpo_vectorized", "remax", "rloo", "rloo_vectorized"),
}
"""A session's advantage is one number that depends on what sessions earned alone."""

every = pytest.mark.parametrize(("name", "with_trainer"), CASES)
few = settings(max_examples=max(2, settings.default.max_examples // 10))
OUTCOMES = st.sampled_from([0.0, 0.1, 0.3, 0.9, 1.0, 2.3, -0.7])


@st.composite
def groups(draw: st.DrawFn, *, void: bool = True, outcomes: Any = OUTCOMES) -> list[Story]:
    """Returns sessions of one prompt in any rows, and sometimes of another one."""
    stories = []
    for number in range(draw(st.integers(2, 5))):
        turns = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
        stories.append(
            Story(
                uid="v" if number > 2 and draw(st.booleans()) else "u",
                turns=turns,
                outcome=draw(outcomes),
                seed=draw(st.integers(0, 9)),
                cuts=tuple(turn for turn in range(1, len(turns)) if draw(st.booleans())),
                sides=tuple(draw(st.lists(st.integers(1, 3), max_size=2))),
                is_rejected=draw(st.booleans()),
                is_void=void and number > 1 and draw(st.integers(0, 4)) == 0,
            )
        )
    return stories


def options_of(name: str, options: Any) -> dict[str, Any]:
    return {"credit": {"options": options[name]}} if name in options else {}


def of_sibling(given: dict[tuple[int, int], torch.Tensor]) -> list[torch.Tensor]:
    return [row for (session, _), row in given.items() if session > 0]


def own_tokens(given: dict[tuple[int, int], torch.Tensor], story: Story, session: int = 0) -> list[float]:
    """Returns the advantages of what the agent itself sampled, in order."""
    tokens: list[float] = []
    index, length = len(story.sides), 0
    for turn, sampled in enumerate(story.turns):
        if turn in story.cuts:
            index, length = index + 1, 0
        elif turn:
            length += 1
        tokens += given[session, index][length : length + sampled].tolist()
        length += sampled
    return tokens


@pytest.mark.sample(4, slow=14)
@every
@few
@given(rest=groups(), story=groups(void=False).map(lambda group: group[0]), gain=st.sampled_from([0.1, 1.0]))
def test_a_row_of_a_success_never_gets_less_than_the_same_row_of_a_failure(
    queue: Any, name: str, with_trainer: bool, rest: Sequence[Story], story: Story, gain: float
) -> None:
    success, failure = replace(story, uid="u", outcome=1.0), replace(story, uid="u", outcome=1.0 - gain)
    for forget in (False, True):
        batch = batch_of([success, failure, *rest], forget=forget)
        given = advantages_of(name, batch, queue=queue, with_trainer=with_trainer)
        for (session, index), row in given.items():
            assert row.isfinite().all()
            if session == 0:
                assert bool((row >= given[1, index] - 1e-5).all()), (index, row, given[1, index])


@every
def test_rows_of_sub_agents_learn_what_became_of_their_session(queue: Any, name: str, with_trainer: bool) -> None:
    success, failure = Story(outcome=1.0, sides=(2, 1)), Story(outcome=0.0, sides=(1,))
    batch = batch_of([success, failure])
    batch.data.batch["values"][:] = 0.5
    given = advantages_of(name, batch, queue=queue, with_trainer=with_trainer, n=2, lam=1.0)
    side, own = given[0, 0][0].item(), given[0, 2][0].item()
    assert side == given[0, 1][0].item()
    assert side == own or name in {"gigpo", "salt"}  # which compare steps, that sub-agents have none of
    assert side >= given[1, 0][0].item()
    if name not in {
        "archer",
        "vapo_gae",
    }:  # the one learns through its critic; short sessions of the other have lambda 0
        assert side > given[1, 0][0].item()


CHANGES: dict[str, Callable[[Story], Story]] = {
    "split": lambda story: replace(story, cuts=(1,)),
    "split twice": lambda story: replace(story, cuts=(1, 2)),
    "delegates": lambda story: replace(story, sides=(2, 3)),
    "last row rejected": lambda story: replace(story, cuts=(1,), is_rejected=True),
    "all of it": lambda story: replace(story, cuts=(2,), sides=(1,), is_rejected=True),
}


@pytest.mark.sample(4, slow=14)
@every
@few
@given(change=st.sampled_from(sorted(CHANGES)), rest=groups(), outcome=OUTCOMES, earlier=st.sampled_from([0.0, 0.2]))
def test_siblings_do_not_feel_what_becomes_of_the_rows_of_a_session(
    queue: Any, name: str, with_trainer: bool, change: str, rest: Sequence[Story], outcome: float, earlier: float
) -> None:
    first = Story(turns=(2, 1, 3), outcome=outcome, earlier=earlier, seed=3)
    plain = advantages_of(name, batch_of([first, *rest]), queue=queue, with_trainer=with_trainer)
    story = CHANGES[change](first)
    given = advantages_of(name, batch_of([story, *rest]), queue=queue, with_trainer=with_trainer)
    for row, wanted in zip(of_sibling(given), of_sibling(plain), strict=True):
        torch.testing.assert_close(row, wanted, atol=2e-5, rtol=1e-4)
    if not story.is_rejected:
        assert own_tokens(given, story) == pytest.approx(own_tokens(plain, first), abs=2e-5, rel=1e-4)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", sorted(OF_SESSIONS))
@few
@given(rest=groups(), outcome=OUTCOMES)
def test_what_is_known_of_a_rejected_row_does_not_matter_where_sessions_are_compared(
    queue: Any, name: str, rest: Sequence[Story], outcome: float
) -> None:
    first = Story(turns=(2, 1), cuts=(1,), outcome=outcome)
    rest = [replace(story, is_rejected=False) for story in rest]
    plain = advantages_of(name, batch_of([first, *rest]), queue=queue)
    # The queue stores nothing but empty masks: the rows' rewards have lost their tokens.
    batch = batch_of(changed([first, *rest], is_rejected=True), forget=True)
    given = advantages_of(name, batch, queue=queue)
    kept = {place: row for place, row in given.items() if place != (0, 1) and row.count_nonzero()}
    for place, row in kept.items():
        torch.testing.assert_close(row, plain[place], atol=2e-5, rtol=1e-4)


@pytest.mark.sample(7, slow=14)
@every
@few
@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    reward=st.sampled_from([0.1, 0.9, 2.3, -0.7]),
    group=groups(),
    is_split=st.booleans(),
)
def test_a_group_that_earned_the_same_gets_exactly_0(
    queue: Any, name: str, with_trainer: bool, dtype: torch.dtype, reward: float, group: Sequence[Story], is_split: bool
) -> None:
    if name in NOT_COMPARING:
        return
    earlier = reward / 3 if is_split and name in OF_SESSIONS and dtype == torch.float32 else 0.0
    same = [
        replace(story, outcome=reward - earlier * (place % 2), earlier=earlier * (place % 2))
        for place, story in enumerate(group)
    ]
    others = [Story(uid="w", outcome=value, seed=number) for number, value in enumerate((0.0, 1.0, 0.3))]
    if name in {"batch_baseline"}:
        others = []
    batch = batch_of([*same, *others], dtype=dtype)
    given = advantages_of(
        name, batch, queue=queue, with_trainer=with_trainer, norm_adv_by_std_in_grpo=True, **NORMED.get(name, {})
    )
    for (session, _), row in given.items():
        if session < len(same):
            assert not row.count_nonzero(), row


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", sorted(OF_SESSIONS - NOT_COMPARING - {"batch_baseline"}))
@few
@given(
    total=st.sampled_from([0.0, 0.1, 0.9]),
    parts=st.lists(st.sampled_from([0.0, 0.001, 0.3, 7.7, 1000.7]), min_size=2, max_size=6),
    by_source=st.booleans(),
)
def test_a_group_that_earned_the_same_in_other_parts_gets_exactly_0(
    queue: Any, name: str, total: float, parts: list[float], by_source: bool
) -> None:
    """Sums of rounded parts differ by more than the rounding of what they sum up to."""
    same = [
        Story(turns=(1, 2), outcome=total - part, earlier=part, seed=number, cuts=(1,) * (number % 2))
        for number, part in enumerate(parts)
    ]
    # With by_source, the mean of all is what these earned: their z-scores are near 0.
    others = [Story(uid="w", outcome=total + more, seed=number) for number, more in enumerate((-0.5, 0.5, -0.2, 0.2))]
    batch = batch_of([*same, *others])
    batch.columns["source_B"] = torch.zeros(len(batch.keys), dtype=torch.int64)
    given = advantages_of(name, batch, queue=queue, norm_adv_by_std_in_grpo=True, credit={"by_source": by_source})
    for (session, _), row in given.items():
        if session < len(same):
            assert not row.count_nonzero(), row


NORMED: dict[str, dict[str, Any]] = {
    name: {"credit": {"options": {"norm": "mean_std", "gamma": 1.0}}} for name in ("gigpo", "spa", "turn_group")
}
"""Discounted returns of sessions that earned the same are the same in sessions of as many turns alone."""


@pytest.mark.parametrize(("name", "with_trainer"), [case for case in CASES if case[0] in AVERAGES])
@few
@given(group=groups(), scale=st.sampled_from([1.0, 1e-3, 1e6]))
def test_less_an_average_advantages_stay_within_the_span_of_returns(
    queue: Any, name: str, with_trainer: bool, group: Sequence[Story], scale: float
) -> None:
    group = [replace(story, outcome=scale * story.outcome) for story in group]
    given = advantages_of(
        name, batch_of(group), queue=queue, with_trainer=with_trainer, **options_of(name, BASE_OPTIONS)
    )
    totals = [story.total for story in group if not story.is_void]
    bound = (max(totals) - min(totals)) * (1 + 1e-5) + 1e-6 * scale
    assert all(float(row.abs().max()) <= bound for row in given.values())


@pytest.mark.sample(3)
@pytest.mark.parametrize("ahead", [0.0, 5.0, 20.0, 35.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["token_baseline", "optimal_token_baseline", "tir_optimal_token_baseline"])
def test_token_baselines_stay_within_the_span_when_the_policy_is_sure(
    queue: Any, name: str, dtype: torch.dtype, ahead: float
) -> None:
    """Sums of squares as verl computes them, which are off by more than what is left of the norm."""
    from verl.utils.torch_functional import calculate_sum_pi_squared_from_logits

    generator = torch.Generator().manual_seed(int(ahead))
    for _ in range(5):
        stories = [Story(outcome=float(number % 2), seed=number, turns=(2, 2)) for number in range(8)]
        batch = batch_of(stories)
        logits = torch.randn((*batch.data.batch["response_mask"].shape, 32), generator=generator)
        logits[..., 0] += ahead
        log_probs = logits.to(dtype).log_softmax(dim=-1)[..., 0].float()
        batch.data.batch["old_log_probs"] = log_probs
        batch.columns["sum_pi_squared_BT"] = calculate_sum_pi_squared_from_logits(logits.to(dtype)).float()
        given = advantages_of(name, batch, queue=queue)
        assert all(float(row.abs().max()) <= 1.0 + 1e-6 for row in given.values())


@pytest.mark.sample(8, slow=14)
@every
@few
@given(
    group=groups(), size=st.sampled_from([1e-30, 1e12, 1e25, 3e38]), values=st.sampled_from([0.0, 1e-30, 1e30, 3e38])
)
def test_no_finite_input_gives_what_is_not_finite(
    queue: Any, name: str, with_trainer: bool, group: Sequence[Story], size: float, values: float
) -> None:
    batch = batch_of([replace(story, outcome=size * story.outcome / 2.3) for story in group])
    batch.data.batch["values"] *= values
    batch.data.batch["old_log_probs"] *= min(size, 1e30)
    given = advantages_of(name, batch, queue=queue, with_trainer=with_trainer, norm_adv_by_std_in_grpo=True)
    assert all(row.isfinite().all() for row in given.values())


@pytest.mark.parametrize("name", sorted(WHITENED))
def test_a_batch_of_a_single_trained_token_teaches_nothing(queue: Any, name: str) -> None:
    batch = batch_of([Story(turns=(1,), outcome=1.0, seed=0)])
    (row,) = advantages_of(name, batch, queue=queue).values()
    assert not row.count_nonzero()


COMPARING = sorted({name for name, with_trainer in CASES if with_trainer} - NOT_COMPARING - {"batch_baseline"})
OVER_THE_BATCH = {"gpg", "lite_ppo", "safe_gdpo", "gdpo", "reinforce_plus_plus_baseline"}
"""They scale by a spread of the whole batch, guided or not."""


@pytest.mark.sample(3, slow=6)
@pytest.mark.parametrize("name", COMPARING)
@few
@given(plain=groups(), outcomes=st.lists(OUTCOMES, min_size=2, max_size=3))
def test_guided_and_unguided_siblings_are_not_compared(
    queue: Any, name: str, plain: Sequence[Story], outcomes: list[float]
) -> None:
    guided = [Story(outcome=outcome, seed=number, is_guided=True) for number, outcome in enumerate(outcomes)]
    together = advantages_of(name, batch_of([*plain, *guided]), queue=queue)
    apart = [replace(story, uid="guided") for story in guided]
    wanted = advantages_of(name, batch_of([*plain, *apart]), queue=queue)
    for place, row in wanted.items():
        torch.testing.assert_close(together[place], row, atol=2e-5, rtol=1e-4)
    if name not in OVER_THE_BATCH:
        alone = advantages_of(name, batch_of(plain), queue=queue)
        for place, row in alone.items():
            torch.testing.assert_close(together[place], row, atol=2e-5, rtol=1e-4)
