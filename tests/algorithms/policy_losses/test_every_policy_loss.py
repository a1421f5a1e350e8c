"""Properties of every policy loss: masks, micro-batches, types and devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended_device import DEVICE, pretended_device, put, take

from verl_agentic.credit.aggregate import masked, token_mean
from verl_agentic.credit.losses.kl import Estimator
from verl_agentic.credit.policy_loss import (
    Loss,
    LossBatch,
    PolicyLossType,
    load_policy_loss,
    policy_loss,
    policy_loss_names,
)

Tensor = torch.Tensor
NAMES = policy_loss_names()
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "masked_ppo": [{}, *({"kl": kl, "kl_coef": 0.5} for kl in get_args(Estimator))],
    "pacs": [{}, {"balanced": False}],
    "ratio_masked": [{"low": 0.9}, {"of": "rollout", "low": 0.9, "high": 1.1}],
    "sequence_ppo": [{}, {"kl_coef": 0.5}],
}
MAX_WAITS = 2
"""Times that a loss may make the host wait for the device, in both passes together."""
CASES = [(name, options) for name in NAMES for options in OPTIONS.get(name, [{}])]
GROUP_SIZE, NUM_GROUPS, WIDTH = 2, 3, 7


def random_batch(seed: int) -> LossBatch:
    """Returns six rows of three groups with every column; the last row has no sampled tokens."""
    generator = torch.Generator().manual_seed(seed)
    rows = GROUP_SIZE * NUM_GROUPS

    def random_BT(scale: float = 1.0) -> Tensor:
        return scale * torch.randn(rows, WIDTH, generator=generator)

    mask_BT = torch.rand(rows, WIDTH, generator=generator) < 0.6
    mask_BT[-1] = False
    mask_BT[:-1, 0] = True
    log_prob_BT = -random_BT().abs() - 0.1
    outcome_B = torch.rand(rows, generator=generator)
    outcome_B[::4] = 1.0
    return LossBatch(
        log_prob_BT=log_prob_BT.requires_grad_(),
        old_log_prob_BT=log_prob_BT.detach() + random_BT(0.3),
        advantages_BT=random_BT(),
        mask_BT=mask_BT,
        is_weights_BT=random_BT().abs(),
        ref_log_prob_BT=log_prob_BT.detach() + random_BT(0.3),
        rollout_log_prob_BT=log_prob_BT.detach() + random_BT(0.3),
        entropy_BT=random_BT().abs(),
        values_BT=random_BT(),
        group_B=torch.arange(NUM_GROUPS).repeat_interleave(GROUP_SIZE),
        session_B=torch.arange(rows),
        group_size_B=torch.full((rows,), GROUP_SIZE),
        outcome_B=outcome_B,
        positive_share_B=torch.full((rows,), 0.4),
        is_external_B=torch.arange(rows) % 2 == 1,
        turn_ids_BT=torch.arange(WIDTH).expand(rows, WIDTH) // 3,
        mean_log_ratio_BT=random_BT(0.1),
        teacher_log_prob_BT=-random_BT().abs(),
    )


def selected(batch: LossBatch, rows: Tensor) -> LossBatch:
    """Returns some rows of a batch, with a leaf of their own."""
    columns = {f.name: getattr(batch, f.name) for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)}
    picked = {name: column.detach()[rows] for name, column in columns.items()}
    picked["log_prob_BT"] = picked["log_prob_BT"].clone().requires_grad_()
    return replace(batch, **picked)


def with_garbage(batch: LossBatch, garbage: float) -> LossBatch:
    """Returns the batch with something else at every masked place of every column of floats."""
    columns = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name.endswith("_BT") and f.name != "mask_BT"}
    dirty = {
        name: torch.where(batch.mask_BT, column.detach(), garbage)
        for name, column in columns.items()
        if column.is_floating_point()
    }
    dirty["log_prob_BT"].requires_grad_()
    return replace(batch, **dirty)


def matrix(loss: Loss) -> Tensor:
    """Returns what the loss gave, `[B, T]` or `[B]`."""
    given_one = [m for m in (loss.per_token_BT, loss.per_row_B) if m is not None]
    assert len(given_one) == 1
    return given_one[0]


def gradient(loss: Loss, batch: LossBatch) -> Tensor:
    """Returns the gradient of the sum, `[B, T]`."""
    (found,) = torch.autograd.grad(matrix(loss).sum(), batch.log_prob_BT)
    return found


def parts(num_rows: int) -> Iterator[Tensor]:
    """Yields the row numbers of micro-batches: one of two groups, one of one."""
    yield torch.arange(0, 2 * GROUP_SIZE)
    yield torch.arange(2 * GROUP_SIZE, num_rows)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("name", "options"), CASES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), garbage=st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e30, 5.0]))
def test_masked_tokens_have_no_influence(name: str, options: dict[str, Any], seed: int, garbage: float) -> None:
    clean = random_batch(seed)
    dirty = with_garbage(clean, garbage)
    expected, got = load_policy_loss(name)(clean, **options), load_policy_loss(name)(dirty, **options)
    assert torch.equal(matrix(got), matrix(expected))
    assert torch.equal(gradient(got, dirty), gradient(expected, clean))
    assert got.metrics == expected.metrics


@pytest.mark.parametrize(("name", "options"), CASES)
def test_nothing_stands_at_masked_tokens(name: str, options: dict[str, Any]) -> None:
    batch = random_batch(0)
    loss = load_policy_loss(name)(batch, **options)
    found_BT = gradient(loss, batch)
    assert bool((found_BT[~batch.mask_BT] == 0).all())
    assert bool((found_BT[batch.mask_BT] != 0).any())
    void = matrix(loss)[-1] if loss.per_row_B is not None else matrix(loss)[~batch.mask_BT]
    assert bool((void == 0).all())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_advantages_have_an_effect_unless_the_loss_declares_that_they_have_none(
    name: str, options: dict[str, Any]
) -> None:
    batch, loss = random_batch(0), load_policy_loss(name)
    others = replace(batch, advantages_BT=-batch.advantages_BT)
    is_same = torch.equal(gradient(loss(batch, **options), batch), gradient(loss(others, **options), others))
    assert is_same is not loss.uses_advantages


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "options"), CASES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31))
def test_micro_batches_add_up_to_the_batch(name: str, options: dict[str, Any], seed: int) -> None:
    """A row's loss depends on its group at most: with the counts of the whole batch, sums over parts are the whole."""
    batch = random_batch(seed)
    whole = load_policy_loss(name)(batch, **options)
    pieces, slopes = [], []
    for rows in parts(len(batch.log_prob_BT)):
        part = selected(batch, rows)
        loss = load_policy_loss(name)(part, **options)
        pieces.append(matrix(loss))
        slopes.append(gradient(loss, part))
    torch.testing.assert_close(torch.cat(pieces), matrix(whole))
    torch.testing.assert_close(torch.cat(slopes), gradient(whole, batch))
    total = sum(piece.sum() / batch.mask_BT.sum() for piece in pieces)
    torch.testing.assert_close(total, matrix(whole).sum() / batch.mask_BT.sum())


@pytest.mark.parametrize(("name", "options"), CASES)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**31), order=st.permutations(range(GROUP_SIZE * NUM_GROUPS)))
def test_the_order_of_rows_does_not_matter(name: str, options: dict[str, Any], seed: int, order: list[int]) -> None:
    batch, rows = random_batch(seed), torch.tensor(order)
    whole = load_policy_loss(name)(batch, **options)
    permuted = load_policy_loss(name)(selected(batch, rows), **options)
    torch.testing.assert_close(matrix(permuted), matrix(whole)[rows])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_bfloat16_is_computed_in_float32(name: str, options: dict[str, Any]) -> None:
    wide = random_batch(1)
    columns = {f.name: getattr(wide, f.name) for f in fields(wide) if f.name.endswith(("_BT", "_B"))}
    halves = {n: c.detach().bfloat16() for n, c in columns.items() if c.is_floating_point()}
    narrow = replace(wide, **halves)
    same = replace(wide, **{name: half.float() for name, half in halves.items()})
    got = matrix(load_policy_loss(name)(narrow, **options))
    assert got.dtype == torch.float32
    assert torch.equal(got, matrix(load_policy_loss(name)(same, **options)))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_micro_batch_of_void_rows_is_all_zeros_and_finite(name: str, options: dict[str, Any]) -> None:
    batch = random_batch(2)
    batch = replace(batch, mask_BT=torch.zeros_like(batch.mask_BT))
    loss = load_policy_loss(name)(batch, **options)
    assert bool((matrix(loss) == 0).all()) and bool((gradient(loss, batch) == 0).all())
    assert all(value == value and abs(value) < 10 for value in loss.metrics.values())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_metrics_do_not_depend_on_padding(name: str, options: dict[str, Any]) -> None:
    batch = random_batch(3)
    padded = {
        f.name: torch.nn.functional.pad(getattr(batch, f.name), (0, 5)) for f in fields(batch) if f.name.endswith("_BT")
    }
    wide = load_policy_loss(name)(replace(batch, **padded), **options).metrics
    assert wide == pytest.approx(dict(load_policy_loss(name)(batch, **options).metrics))


def check_on_device(loss_type: PolicyLossType, batch: LossBatch, options: dict[str, Any]) -> None:
    """Fails unless a loss gives the same on a device as on the CPU, without making the host wait often."""
    expected = loss_type(batch, **options)
    with pretended_device() as waits:
        there = put(batch)
        got = loss_type(there, **options)
        slopes_BT = gradient(got, there)
    assert sum(waits.values()) <= MAX_WAITS, dict(waits)
    assert matrix(got).device == DEVICE
    torch.testing.assert_close(take(matrix(got)), matrix(expected))
    torch.testing.assert_close(take(slopes_BT), gradient(expected, batch))
    assert got.metrics == pytest.approx(dict(expected.metrics))


def in_type(batch: LossBatch, dtype: torch.dtype) -> LossBatch:
    """Returns the batch with columns of another type, and a leaf of its own."""
    names = [f.name for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)]
    columns = {name: getattr(batch, name).detach() for name in names if getattr(batch, name).is_floating_point()}
    columns = {name: column.to(dtype) for name, column in columns.items()}
    columns["log_prob_BT"].requires_grad_()
    return replace(batch, **columns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_device_gives_the_same_and_the_host_seldom_waits(
    name: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    check_on_device(load_policy_loss(name), in_type(random_batch(4), dtype), options)


def made_on_the_host(batch: LossBatch) -> Tensor:
    return batch.log_prob_BT * torch.ones(batch.log_prob_BT.shape[1])


def positions_of_the_host(batch: LossBatch) -> Tensor:
    return torch.where(batch.mask_BT, batch.log_prob_BT, torch.arange(float(batch.log_prob_BT.shape[1])))


def read_in_a_loop(batch: LossBatch) -> Tensor:
    lengths = [int(mask_T.sum()) for mask_T in batch.mask_BT]
    return batch.log_prob_BT / max(lengths)


def selected_by_a_mask(batch: LossBatch) -> Tensor:
    return batch.log_prob_BT / sum(batch.log_prob_BT[batch.mask_BT & (row == 0)].sum() for row in range(3))


def metrics_read_alone(batch: LossBatch) -> Tensor:
    means = [float(token_mean(batch.advantages_BT, batch.mask_BT)) for _ in range(3)]
    return batch.log_prob_BT * len(means)


def numbers_from_the_host(batch: LossBatch) -> Tensor:
    rows = torch.tensor(range(len(batch.log_prob_BT)), device=batch.log_prob_BT.device)
    return batch.log_prob_BT[rows.tolist()] + rows.cpu().sum()


@pytest.mark.parametrize(
    "fault",
    [
        made_on_the_host,
        positions_of_the_host,
        read_in_a_loop,
        selected_by_a_mask,
        metrics_read_alone,
        numbers_from_the_host,
    ],
)
def test_device_faults_of_a_loss_are_found(fault: Any) -> None:
    @policy_loss()
    def faulty(batch: LossBatch) -> Loss:
        return Loss(per_token_BT=masked(fault(batch), batch.mask_BT))

    with pytest.raises((AssertionError, RuntimeError), match=r"same device|copy to the|item or bool|mask as index"):
        check_on_device(faulty, random_batch(4), {})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_gpu_gives_the_same(name: str, options: dict[str, Any]) -> None:
    batch = random_batch(4)
    columns = {f.name: getattr(batch, f.name) for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)}
    there = replace(batch, **{name: column.detach().cuda() for name, column in columns.items()})
    there.log_prob_BT.requires_grad_()
    expected, got = load_policy_loss(name)(batch, **options), load_policy_loss(name)(there, **options)
    torch.testing.assert_close(matrix(got).cpu(), matrix(expected))
    torch.testing.assert_close(gradient(got, there).cpu(), gradient(expected, batch))
