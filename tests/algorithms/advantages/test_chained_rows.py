"""Properties of every estimator that looks along an episode."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from batches import COLUMNS, Rows, any_rows
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.credit.advantage import load_advantage

NAMES = [
    "archer",
    "bilevel_gae",
    "hierarchical",
    "monte_carlo",
    "retrace",
    "step_critic",
    "token_baseline",
    "turn_gae",
    "vapo_gae",
    "vtrace",
]
OPTIONS = {
    "monte_carlo": {"gamma": 0.9},
    "bilevel_gae": {"gamma": 0.9, "lam": 0.7},
    "vapo_gae": {"alpha": 0.4, "gamma": 0.9},
    "vtrace": {"gamma": 0.9, "lam": 0.8},
    "hierarchical": {"gamma": 0.9},
    "retrace": {"lam": 0.8},
    "token_baseline": {"keep_alone": True},
}
KNOWN = ["turn_ids_BT", "values_BT", "old_log_probs_BT", "rollout_log_probs_BT", "sum_pi_squared_BT"]


def some_rows(**kwargs) -> st.SearchStrategy[Rows]:
    """Returns rows of whose columns the turns alone go on from row to row of a session."""
    return any_rows(needs=KNOWN, dense=True, **kwargs).map(_with_turns_that_go_on)


def _with_turns_that_go_on(rows: Rows) -> Rows:
    place = torch.tensor(rows.order).unsqueeze(-1)
    return replace(rows, columns={**rows.columns, "turn_ids_BT": rows.columns["turn_ids_BT"] + 10 * place})


def cut(rows: Rows, *, pieces: int, seed: int) -> tuple[Rows, torch.Tensor]:
    """Returns every row of one session cut at beginnings of turns, shuffled; and which row each piece is of."""
    generator = torch.Generator().manual_seed(seed)
    turns = rows.columns["turn_ids_BT"]
    piece_of_turn = torch.randint(0, pieces, (len(turns), 16), generator=generator).sort(dim=1).values
    piece = piece_of_turn.gather(1, turns)
    count = len(rows.mask)
    pairs = [divmod(int(i), pieces) for i in torch.randperm(count * pieces, generator=generator)]
    of = torch.tensor([row for row, _ in pairs])
    is_here = torch.stack([piece[row] == k for row, k in pairs])
    return (
        Rows(
            rewards=rows.rewards[of] * is_here,
            mask=rows.mask[of] * is_here,
            groups=[rows.groups[row] for row, _ in pairs],
            sessions=[row for row, _ in pairs],
            order=[k for _, k in pairs],
            columns={name: column[of] for name, column in rows.columns.items()},
        ),
        of,
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
@given(rows=some_rows(several_rows=False), pieces=st.integers(2, 4), seed=st.integers(0, 99))
def test_an_episode_in_several_rows_is_the_episode_in_one(name: str, rows: Rows, pieces: int, seed: int) -> None:
    estimator, options = load_advantage(name), OPTIONS.get(name, {})
    whole = estimator(rows.batch(), **options)
    parts, of = cut(rows, pieces=pieces, seed=seed)
    given = estimator(parts.batch(), **options)
    for column in ("advantages_BT", "returns_BT"):
        joined = torch.zeros(rows.mask.shape).index_add(0, of, getattr(given, column))
        torch.testing.assert_close(joined, getattr(whole, column), atol=2e-5, rtol=1e-4)
    assert given.metrics == {n: pytest.approx(v, abs=1e-3, rel=1e-3) for n, v in whole.metrics.items()}


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_say_nothing_get_nothing_and_change_nothing(name: str) -> None:
    """Sessions that are void, and those with a reward that is not a number."""
    estimator, options = load_advantage(name), OPTIONS.get(name, {})
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    rewards = torch.randn(4, 4, generator=generator)
    rewards[2, 0] = torch.nan
    columns = {k: COLUMNS[k](mask, torch.arange(4), generator) for k in KNOWN}
    rows = Rows(rewards=rewards, mask=mask, groups=[0] * 4, sessions=[0, 1, 2, 3], order=[0] * 4, columns=columns)
    two = Rows(rewards=rewards[:2], mask=mask[:2], groups=[0, 0], sessions=[0, 1], order=[0, 0],
               columns={k: v[:2] for k, v in columns.items()})  # fmt: skip
    given, expected = estimator(rows.batch(), **options), estimator(two.batch(), **options)
    assert given.advantages_BT[2:].tolist() == [[0.0] * 4] * 2
    assert torch.equal(given.advantages_BT[:2], expected.advantages_BT)
    assert torch.equal(given.returns_BT[:2], expected.returns_BT)
    assert given.metrics == expected.metrics
    columns["values_BT"][2:] = torch.nan
    assert torch.equal(estimator(rows.batch(), **options).advantages_BT, given.advantages_BT)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_computed_in_float32(name: str) -> None:
    estimator, options = load_advantage(name), OPTIONS.get(name, {})
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]])
    columns = {k: COLUMNS[k](mask, torch.arange(2), generator) for k in KNOWN}
    low = {k: v.bfloat16() if v.is_floating_point() else v for k, v in columns.items()}
    rewards = torch.randn(2, 4, generator=generator).bfloat16()
    rows = Rows(rewards=rewards, mask=mask, groups=[0, 0], sessions=[0, 1], order=[0, 0], columns=low)
    exact = replace(
        rows, rewards=rewards.float(), columns={k: v.float() if v.is_floating_point() else v for k, v in low.items()}
    )
    given, expected = estimator(rows.batch(), **options), estimator(exact.batch(), **options)
    assert torch.equal(given.advantages_BT, expected.advantages_BT)
    assert torch.equal(given.returns_BT, expected.returns_BT)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_nothing_but_void_rows_is_no_error(name: str) -> None:
    mask = torch.zeros(2, 3, dtype=torch.int64)
    columns = {k: COLUMNS[k](mask, torch.arange(2), torch.Generator().manual_seed(0)) for k in KNOWN}
    rows = Rows(rewards=torch.ones(2, 3), mask=mask, groups=[0, 0], sessions=[0, 1], order=[0, 0], columns=columns)
    given = load_advantage(name)(rows.batch(), **OPTIONS.get(name, {}))
    assert given.advantages_BT.tolist() == given.returns_BT.tolist() == [[0.0] * 3] * 2
