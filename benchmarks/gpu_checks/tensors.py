"""The check `tensors`: every advantage estimator, policy loss, metric and formula on the device against the CPU.

Batches and cases are those of the tests. On a CPU both sides are the same, and host reads are counted on the pretended
device of the tests.
"""

from __future__ import annotations

import math
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from _gpu_check import Check
from hypothesis import HealthCheck, Phase, given, settings

from verl_agentic.credit.advantage import advantage_names, load_advantage
from verl_agentic.credit.estimate import CreditSettings, estimate
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "algorithms"
sys.path[:0] = [str(_TESTS), str(_TESTS / "policy_losses"), str(_TESTS.parent / "fixtures")]

import batches  # noqa: E402
from pretended_device import pretended_device, put  # noqa: E402
from test_every_policy_loss import CASES, gradient, matrix, random_batch  # noqa: E402
from test_on_device import FORMULAS, METRICS  # noqa: E402

Tensors = Sequence[torch.Tensor]
_NUM_BATCHES = 8


def run(check: Check) -> None:
    differences: dict[str, float] = {}
    failures: dict[str, str] = {}
    for name, compare in [*_estimators(), *_metrics(), *_formulas(), *_losses()]:
        try:
            differences[name] = compare(check.device)
        except Exception as error:
            traceback.print_exc()
            failures[name] = f"{type(error).__name__}: {error}"[:300]
    largest = sorted(differences.items(), key=lambda item: -item[1])
    check.note({"cases": len(differences) + len(failures), "failures": failures, "largest": dict(largest[:5])})
    check.judge("cases that fail on the device", len(failures), max_value=0)
    check.judge("largest difference to the CPU", max(differences.values(), default=math.nan), max_value=1e-3)
    reads = {f"{name} {options}": _count_host_reads(name, options, check.device) for name, options in CASES}
    check.note({"host reads of a loss": reads})
    check.judge("most host reads of a loss", max(reads.values()), max_value=2)


def _estimators() -> Iterator[tuple[str, Callable[[str], float]]]:
    for name in advantage_names():
        estimator = load_advantage(name)
        columns = {column for column in estimator.needs | estimator.accepts if column in batches.COLUMNS}

        def compute(rows: batches.Rows, estimator: Any = estimator) -> Tensors:
            credit = estimate(estimator, rows.batch(), CreditSettings(by_source=True, clip=5.0))
            return credit.advantages_BT, credit.returns_BT

        yield f"estimator {name}", _compare_on_rows(compute, columns | {"source_B"})


def _metrics() -> Iterator[tuple[str, Callable[[str], float]]]:
    for name, metric in METRICS.items():

        def compute(rows: batches.Rows, metric: Any = metric) -> Tensors:
            return [torch.tensor(value) for _, value in sorted(metric(rows.batch()).items())]

        yield f"metric {name}", _compare_on_rows(compute, set(batches.COLUMNS))


def _formulas() -> Iterator[tuple[str, Callable[[str], float]]]:
    for name, (function, inputs) in FORMULAS.items():

        def compare(device: str, function: Any = function, inputs: Any = inputs) -> float:
            sides = [function(*(tensor.to(place) for tensor in inputs)) for place in ("cpu", device)]
            return _max_difference(*(side if isinstance(side, tuple) else (side,) for side in sides))

        yield f"formula {name}", compare


def _losses() -> Iterator[tuple[str, Callable[[str], float]]]:
    for dtype in (torch.float32, torch.bfloat16):
        for name, options in CASES:

            def compare(device: str, name: str = name, options: Any = options, dtype: Any = dtype) -> float:
                batch = random_batch(1)
                sides = [_run_loss(name, options, _move(batch, place, dtype)) for place in ("cpu", device)]
                return _max_difference(*sides)

            yield f"loss {name} {options} {dtype}", compare


def _compare_on_rows(compute: Callable[[batches.Rows], Tensors], columns: set[str]) -> Callable[[str], float]:
    """Returns a function that gives the largest difference between a device and the CPU over several batches."""

    def compare(device: str) -> float:
        differences: list[float] = []

        @settings(
            max_examples=_NUM_BATCHES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(batches.any_rows(needs=columns, dense=True))
        def compare_rows(rows: batches.Rows) -> None:
            differences.append(_max_difference(compute(rows), compute(rows.to(device))))

        compare_rows()
        return max(differences)

    return compare


def _move(batch: LossBatch, device: str, dtype: torch.dtype) -> LossBatch:
    columns = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved = {
        name: column.detach().to(device, dtype if column.is_floating_point() else None)
        for name, column in columns.items()
        if isinstance(column, torch.Tensor)
    }
    moved["log_prob_BT"].requires_grad_()
    return replace(batch, **moved)


def _run_loss(name: str, options: dict[str, Any], batch: LossBatch) -> Tensors:
    """Returns a loss and its gradient."""
    loss = load_policy_loss(name)(batch, **options)
    return matrix(loss).detach(), gradient(loss, batch)


def _count_host_reads(name: str, options: dict[str, Any], device: str) -> int:
    """Returns how often a loss waits for the device. Moving its columns there is no part of the loss."""
    if device == "cpu":
        with pretended_device() as waits:
            _run_loss(name, options, put(random_batch(1)))
        return sum(waits.values())
    batch = _move(random_batch(1), device, torch.float32)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            _run_loss(name, options, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in seen)


def _max_difference(ours: Tensors, theirs: Tensors) -> float:
    """Returns the largest difference; infinity where one side is not finite and the other is."""
    differences = [0.0]
    for one, other in zip(ours, theirs, strict=True):
        one, other = (torch.as_tensor(side).double().cpu() for side in (one, other))
        gap = torch.where((one == other) | (one.isnan() & other.isnan()), 0.0, (one - other).abs())
        differences.append(float(gap.nan_to_num(nan=torch.inf).max()) if gap.numel() else 0.0)
    return max(differences)
