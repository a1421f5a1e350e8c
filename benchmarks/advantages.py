"""Measures what estimating advantages costs beside verl's vectorised GRPO, on 16,384 rows of 4,096 tokens.

Times are CPU times on one thread: wall times of a machine that has nothing else to do.

`time_vs_verl_grpo_vectorized`: time of `safe_grpo` over that of verl's `grpo_vectorized`, from what verl's trainer
holds: rewards, an int64 mask and uids. Making the `CreditBatch` counts, with sessions of one row each.

`time_in_tokens`: time of `safe_grpo` for rows twice as long, over twice that of the rows.

`time_vs_verl.NAME`: any other estimator's time over that of verl's `grpo_vectorized`; the columns it needs are made
before. `time_vs_verl.safe_grpo_checked`: `safe_grpo` as it is called in training, with the checks and metrics of
`estimate`.

The others are measured on 2,048 rows, against verl's on as many: token by token, some need many matrices.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from _report import Target, median, progress, report
from verl.trainer.ppo.core_algos import compute_grpo_vectorized_outcome_advantage

from verl_agentic.credit.advantage import AdvantageType, advantage_names, load_advantage
from verl_agentic.credit.credit.batch import CreditBatch, Steps
from verl_agentic.credit.estimate import CreditSettings, estimate

Tensor = torch.Tensor

_ROWS, _TOKENS, _GROUP_SIZE, _TURNS = 16_384, 4_096, 8, 8
_ROWS_OF_OTHERS = 2_048
_REPEATS = 7


@dataclass(frozen=True, kw_only=True)
class Held:
    """A batch as verl's trainer holds it, B rows of T tokens."""

    rewards: Tensor
    mask: Tensor
    uids: np.ndarray


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats")
    options = parser.parse_args()
    shrink, repeats = (4, 3) if options.quick else (1, _REPEATS)
    rows, tokens, rows_of_others = _ROWS // shrink, _TOKENS, _ROWS_OF_OTHERS // shrink
    torch.set_num_threads(1)
    against, figures = _against_verl(rows, tokens, repeats)
    return report(
        "advantages",
        ratios={
            "time_vs_verl_grpo_vectorized": against,
            "time_in_tokens": _in_tokens(rows // 2, tokens, repeats),
        },
        figures={
            "rows": rows,
            "tokens": tokens,
            "rows_of_others": rows_of_others,
            **figures,
            **_others(rows_of_others, tokens, repeats),
        },
        targets={
            "time_vs_verl_grpo_vectorized": Target(bound=1.0, at_least=False),
            "time_in_tokens": Target(bound=1.2, at_least=False),
        },
    )


def make_held(rows: int, tokens: int) -> Held:
    """Returns groups of 8 rows, each of 8 turns of 3 sampled tokens in 4, with an outcome of 0 or 1 at the end."""
    turn = torch.arange(tokens) % max(tokens // _TURNS, 1)
    mask = (turn >= max(tokens // _TURNS, 1) // 4).long().repeat(rows, 1)
    # Written to, as a trainer's are: pages of memory that never were cost nothing to read.
    rewards = torch.full((rows, tokens), 1.0).zero_()
    rewards[:, -1] = torch.randint(0, 2, (rows,), generator=torch.Generator().manual_seed(0)).float()
    uids = np.repeat(np.array([str(uuid.UUID(int=i)) for i in range(rows // _GROUP_SIZE)], dtype=object), _GROUP_SIZE)
    return Held(rewards=rewards, mask=mask, uids=uids)


def make_columns(held: Held) -> dict[str, Any]:
    """Returns every optional column that an estimator may need."""
    rows, tokens = held.mask.shape
    generator = torch.Generator().manual_seed(1)
    noise_BT = torch.rand(rows, tokens, generator=generator)
    steps = torch.randint(0, 4, (rows, _TURNS), generator=generator)
    parts = {"acc": held.rewards.sum(dim=1), "format": noise_BT[:, 0].clone()}
    return {
        "turn_ids_BT": (torch.arange(tokens) // max(tokens // _TURNS, 1)).clamp(max=_TURNS - 1).repeat(rows, 1),
        "values_BT": noise_BT,
        "old_log_probs_BT": -noise_BT,
        "rollout_log_probs_BT": -noise_BT,
        "sum_pi_squared_BT": noise_BT,
        "steps": Steps(state_BK=steps, action_BK=steps, first_turn_B=torch.zeros(rows, dtype=torch.int64)),
        "source_B": torch.zeros(rows, dtype=torch.int64),
        "parts": parts,
        "baseline_B": torch.full((rows,), 0.5),
        "shared_BT": torch.full((rows, tokens), -1),
        "uses_B": torch.ones(rows, dtype=torch.int64),
    }


def _verl(held: Held) -> Callable[[], Any]:
    return lambda: compute_grpo_vectorized_outcome_advantage(held.rewards, held.mask, held.uids)[0]


def _ours(held: Held, estimator: AdvantageType, columns: Mapping[str, Any] | None = None) -> Callable[[], Any]:
    known = {name: column for name, column in (columns or {}).items() if name in estimator.needs}
    return lambda: estimator(_batch(held, known)).advantages_BT


def _checked(held: Held, estimator: AdvantageType) -> Callable[[], Any]:
    return lambda: estimate(estimator, _batch(held, {}), CreditSettings()).advantages_BT


def _batch(held: Held, known: Mapping[str, Any]) -> CreditBatch:
    return CreditBatch.of(rewards=held.rewards, mask=held.mask, groups=held.uids.tolist(), **known)


def _against_verl(rows: int, tokens: int, repeats: int) -> tuple[float, dict[str, Any]]:
    """Returns the time of `safe_grpo` over verl's, and figures."""
    held, grpo = make_held(rows, tokens), load_advantage("safe_grpo")
    torch.testing.assert_close(_ours(held, grpo)(), _verl(held)())
    sides = {"verl": _verl(held), "ours": _ours(held, grpo), "checked": _checked(held, grpo)}
    times = _alternating(sides, repeats, f"safe_grpo, {rows} x {tokens}")
    ratios = {name: _over(times[name], times["verl"]) for name in ("ours", "checked")}
    return ratios["ours"], {
        "verl_grpo_vectorized_s": median(times["verl"]),
        "safe_grpo_s": median(times["ours"]),
        "time_vs_verl.safe_grpo_checked": ratios["checked"],
    }


def _in_tokens(rows: int, tokens: int, repeats: int) -> float:
    """Returns the time for rows twice as long, over twice that of the rows."""
    grpo, half, whole = load_advantage("safe_grpo"), make_held(rows, tokens), make_held(rows, 2 * tokens)
    sides = {"half": _ours(half, grpo), "whole": _ours(whole, grpo)}
    times = _alternating(sides, repeats, f"{tokens} and {2 * tokens} tokens")
    return median([ratio / 2 for ratio in _ratios(times["whole"], times["half"])])


def _others(rows: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Returns the time of every other estimator over verl's."""
    held = make_held(rows, tokens)
    columns = make_columns(held)
    figures = {}
    for name in advantage_names():
        if name != "safe_grpo":
            sides = {"verl": _verl(held), "ours": _ours(held, load_advantage(name), columns)}
            times = _alternating(sides, max(repeats - 2, 3), f"{name}, {rows} x {tokens}")
            figures[f"time_vs_verl.{name}"] = _over(times["ours"], times["verl"])
    return figures


def _alternating(sides: Mapping[str, Callable[[], Any]], repeats: int, what: str) -> dict[str, list[float]]:
    """Returns the CPU seconds of every side, in turns, once each was warm."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for name, run in sides.items():
            started = time.process_time()
            run()
            if repeat:
                times[name].append(time.process_time() - started)
    progress(f"{what}: " + ", ".join(f"{name} {median(seconds):.3g} s" for name, seconds in times.items()))
    return times


def _ratios(these: list[float], those: list[float]) -> list[float]:
    return [this / that for this, that in zip(these, those, strict=True)]


def _over(these: list[float], those: list[float]) -> float:
    return median(_ratios(these, those))


if __name__ == "__main__":
    sys.exit(main())
