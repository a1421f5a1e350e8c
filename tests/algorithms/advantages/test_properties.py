"""Properties of every estimator, on any batch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from batches import COLUMNS, OPTIONS, Rows, any_rows, on_last_token
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_agentic.credit.advantage import advantage_names, load_advantage

OUTCOME = (
    "batch_baseline",
    "dr_grpo",
    "lite_ppo",
    "safe_gdpo",
    "safe_grpo",
    "safe_passk",
    "safe_remax",
    "safe_rloo",
)
"""A session's advantage is one number."""
CENTRED = ("dr_grpo", "safe_grpo", "safe_rloo")
"""A group's advantages sum up to 0, and what all of its sessions earn alike does not matter."""

every = pytest.mark.parametrize("name", advantage_names())
few = settings(max_examples=max(8, settings.default.max_examples // 5))


def estimate(name: str, rows: Rows, **options) -> Any:
    return load_advantage(name)(rows.batch(), **OPTIONS.get(name, {}), **options)


def estimated(name: str, rows: Rows, **options) -> torch.Tensor:
    return estimate(name, rows, **options).advantages_BT


def rows_for(name: str, **kinds) -> st.SearchStrategy[Rows]:
    # Without turn ids, rows of a session are taken to stand in order.
    return any_rows(needs=load_advantage(name).needs | {"turn_ids_BT"}, dense=name not in OUTCOME, **kinds)


@pytest.mark.sample(3)
@every
@few
@given(data=st.data())
def test_an_estimate_depends_on_sampled_tokens_of_valid_rows_alone(name, data) -> None:
    rows = data.draw(rows_for(name))
    places = data.draw(st.permutations(range(len(rows.mask))))
    plain, dirty, permuted = (estimate(name, r) for r in (rows, rows.with_garbage(), rows.permuted(places)))
    for column_BT in (plain.advantages_BT, plain.returns_BT):
        assert column_BT.shape == rows.mask.shape and column_BT.isfinite().all() and column_BT.dtype == torch.float32
        assert not column_BT[rows.mask == 0].count_nonzero()
    assert torch.equal(dirty.advantages_BT, plain.advantages_BT) and torch.equal(dirty.returns_BT, plain.returns_BT)
    assert dirty.metrics == plain.metrics
    torch.testing.assert_close(permuted.advantages_BT, plain.advantages_BT[places])
    torch.testing.assert_close(permuted.returns_BT, plain.returns_BT[places], atol=1e-5, rtol=1e-4)


@pytest.mark.sample(2)
@every
@few
@given(data=st.data())
def test_void_rows_and_half_precision_have_no_influence(name, data) -> None:
    rows = data.draw(rows_for(name, several_rows=False))
    plain_BT = estimated(name, rows)
    kept = [row for row in range(len(rows.mask)) if rows.mask[row].any()]
    if kept:
        torch.testing.assert_close(plain_BT[kept], estimated(name, rows.permuted(kept)))
    half = replace(rows, rewards=rows.rewards.bfloat16())
    assert torch.equal(estimated(name, half), estimated(name, replace(rows, rewards=half.rewards.float())))


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", OUTCOME)
@few
@given(data=st.data())
def test_all_rows_of_a_session_get_the_advantage_of_its_last(name, data) -> None:
    rows = data.draw(rows_for(name))
    advantages_BT, session_B = estimated(name, rows), rows.batch().session_B
    for session in session_B.unique():
        sampled = advantages_BT[session_B == session][rows.mask[session_B == session] == 1]
        assert len(sampled.unique()) <= 1


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", OUTCOME)
@few
@given(data=st.data())
def test_a_session_may_be_cut_into_rows(name, data) -> None:
    needs = sorted(load_advantage(name).needs)
    rows = data.draw(any_rows(needs=needs, several_rows=False))
    # Every session once more, in two rows: all of it, and a row that earned nothing.
    twice = [row for row in range(len(rows.mask)) for _ in range(2)]
    cut = rows.permuted(twice)
    order = [place for _ in rows.order for place in range(2)]
    first = torch.tensor(order).unsqueeze(-1) == 0
    cut = replace(cut, order=order, rewards=cut.rewards * first)
    torch.testing.assert_close(estimated(name, cut), estimated(name, rows)[twice])


@pytest.mark.parametrize("name", CENTRED)
@few
@given(data=st.data())
def test_advantages_of_a_group_sum_up_to_0(name, data) -> None:
    batch = data.draw(rows_for(name)).batch()
    advantages_BT = load_advantage(name)(batch).advantages_BT
    # Every valid row of a session has its advantage; one valid row per session is enough.
    per_session = {}
    for row in batch.valid_B.nonzero().squeeze(-1).tolist():
        sampled = advantages_BT[row][batch.mask_BT[row]]
        per_session[int(batch.session_B[row])] = (int(batch.group_B[row]), float(sampled[0]))
    for group in {group for group, _ in per_session.values()}:
        assert sum(value for g, value in per_session.values() if g == group) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in (*CENTRED, "safe_passk")), ("lite_ppo", {"std_of": "centred"})]
)
@few
@given(data=st.data())
def test_what_all_sessions_of_a_group_earn_alike_does_not_matter(name, options, data) -> None:
    rows = data.draw(rows_for(name, several_rows=False))
    group = data.draw(st.sampled_from(sorted(set(map(int, rows.groups)))))
    shift = data.draw(st.integers(-80, 80)) / 8
    last = rows.mask.cumsum(dim=1).eq(rows.mask.sum(dim=1, keepdim=True)) & rows.mask.bool()
    in_group = torch.tensor([g == group for g in rows.groups]).unsqueeze(-1)
    shifted = replace(rows, rewards=rows.rewards + shift * (last & in_group))
    torch.testing.assert_close(
        estimated(name, shifted, **options), estimated(name, rows, **options), rtol=1e-4, atol=1e-5
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@few
@given(data=st.data())
def test_a_gpu_computes_the_same(data) -> None:
    name = data.draw(st.sampled_from(advantage_names()))
    rows = data.draw(rows_for(name))
    torch.testing.assert_close(estimated(name, rows.to("cuda")).cpu(), estimated(name, rows))


STRINGS = {"std_of": ("outcomes", "centred"), "singleton": ("zero", "raw")}
"""Values of options whose annotation does not list them."""


def choices(name: str) -> Iterator[dict[str, Any]]:
    """Yields every value of every option that is a choice, and no option."""
    yield {}
    for option, hint in get_type_hints(load_advantage(name).function).items():
        values = STRINGS[option] if hint is str else (False, True) if hint is bool else get_args(hint)
        if get_origin(hint) is Literal or hint in (str, bool):
            yield from ({option: value} for value in values)


@pytest.mark.parametrize(("name", "options"), [(name, one) for name in advantage_names() for one in choices(name)])
def test_an_estimator_says_whether_a_session_without_siblings_teaches_nothing(name, options) -> None:
    mask, alone_B = torch.ones(4, 3, dtype=torch.int64), torch.arange(4)
    generator = torch.Generator().manual_seed(0)
    rows = Rows(
        rewards=on_last_token([1.0, 0.0, 0.5, 1.0], mask),
        mask=mask,
        groups=list("abcd"),
        sessions=list("abcd"),
        order=[0] * 4,
        columns={
            column: COLUMNS[column](mask, alone_B, generator)
            for column in sorted(load_advantage(name).needs | {"turn_ids_BT"})
        },
    )
    assert load_advantage(name).compares(options) == (not estimated(name, rows, **options).any())


@every
def test_an_estimator_says_what_its_discounts_are_of(name) -> None:
    estimator = load_advantage(name)
    options = inspect.signature(estimator.function).parameters
    assert {option for option in options if option.endswith("gamma")} == set(estimator.discounts)
    steps = set(estimator.discounts.values())
    halved = dict.fromkeys(estimator.discounts, 0.5)
    for step in ("turn", "token"):
        assert estimator.discount_of(halved, step) == (0.5 if step in steps else 1.0)
