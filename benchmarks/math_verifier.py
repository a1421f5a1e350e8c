"""Judges pairs of answer and ground truth with known verdicts, and a batch of which half hangs in algebra.

`false_negatives`, `false_positives`: right answers that were found wrong, and wrong ones that were found right.

`model_*`: of responses in notations of models and public data sets (`tests/rewards/model_notations.py`), each filled
with a right and a wrong value. `held_out_*`: of notations that were written before the verifier was made to read them
(`tests/rewards/held_out_notations.py`); they count as notations of models, too.

`hanging_batch_s`: wall time of 256 answers that are judged at once, half of them expressions on which symbolic algebra
does not come to an end. All are different, so that none is known from before.

`quick_verdict_us`: time of a verdict that needs no algebra, median of 9 rounds.

`--others` judges the same pairs with math-verify and with verl's `prime_math` and `math_dapo` (strict boxes).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from _report import Target, progress, report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rewards"))
import held_out_notations
import model_notations
from math_pairs import Pair, endless_answers, make_pairs, spellings

from verl_agentic.base.errors import ScoringError
from verl_agentic.base.text.boxes import answer_in_boxes
from verl_agentic.graders.maths.boxed_math import expression_of, judge

_TIMEOUT_S = 60.0  # wall time of one verdict; what ends algebra is the limit of its processor time
_MAX_MISSED_SHARE = 0.02


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pairs, and a smaller batch")
    parser.add_argument("--others", action="store_true", help="judge with other verifiers, too; takes minutes")
    options = parser.parse_args()
    batch = 32 if options.quick else 256
    parts = _pairs(rounds=1 if options.quick else 4)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        verdicts = {name: loop.run_until_complete(_verdicts(pairs)) for name, pairs in parts.items()}
        elapsed_s, num_unjudged, num_paid = loop.run_until_complete(_hanging_batch(batch))
        quick_us = loop.run_until_complete(_quick_us())
    counts = {name: _missed(parts[name], verdicts[name], is_shown=True) for name in parts}
    models = counts["model"][0] + counts["held_out"][0], _num_right(parts["model"]) + _num_right(parts["held_out"])
    pairs = [pair for part in parts.values() for pair in part]
    figures = {
        "pairs": len(pairs),
        "right_pairs": _num_right(pairs),
        "families": len({pair.family for pair in pairs}),
        "model_pairs": len(parts["model"]) + len(parts["held_out"]),
        "false_positives": sum(num_paid for _, num_paid in counts.values()),
        "false_negatives": counts["corpus"][0],
        "model_false_negative_share": round(models[0] / models[1], 4),
        "held_out_pairs": len(parts["held_out"]),
        "held_out_false_negative_share": round(counts["held_out"][0] / _num_right(parts["held_out"]), 4),
        "hanging_batch": batch,
        "hanging_batch_s": round(elapsed_s, 2),
        "hanging_batch_unjudged": num_unjudged,
        "hanging_batch_right": num_paid,
        "quick_verdict_us": round(quick_us, 1),
        **(_other_figures(parts) if options.others else {}),
    }
    return report("math_verifier", ratios={}, figures=figures, targets=_targets(batch, is_quick=options.quick))


def _targets(batch: int, *, is_quick: bool) -> dict[str, Target]:
    return {
        "pairs": Target(bound=2_000 if is_quick else 7_000),
        "model_pairs": Target(bound=1_000),
        "false_positives": Target(bound=0, at_least=False),
        "false_negatives": Target(bound=0, at_least=False),
        "model_false_negative_share": Target(bound=_MAX_MISSED_SHARE, at_least=False),
        "hanging_batch_s": Target(bound=60, at_least=False),
        "hanging_batch_right": Target(bound=batch // 2),
    }


def _pairs(rounds: int) -> dict[str, list[Pair]]:
    notations = {"model": model_notations.STYLES, "held_out": held_out_notations.STYLES}
    return {
        "corpus": make_pairs(rounds=rounds),
        **{name: model_notations.model_pairs(styles, rounds=rounds) for name, styles in notations.items()},
    }


def _num_right(pairs: Sequence[Pair]) -> int:
    return sum(pair.is_right for pair in pairs)


def _missed(pairs: Sequence[Pair], verdicts: Sequence[bool], *, is_shown: bool = False) -> tuple[int, int]:
    """Returns the numbers of false negatives and of false positives."""
    missed = [(pair, paid) for pair, paid in zip(pairs, verdicts, strict=True) if pair.is_right != paid]
    for pair, is_paid in missed if is_shown else ():
        progress(f"{'false positive' if is_paid else 'false negative'}: {pair}")
    num_paid = sum(is_paid for _, is_paid in missed)
    return len(missed) - num_paid, num_paid


async def _verdicts(pairs: list[Pair]) -> list[bool]:
    progress(f"{len(pairs)} pairs")
    return await asyncio.gather(*map(_verdict, pairs))


async def _verdict(pair: Pair) -> bool:
    answer = answer_in_boxes(pair.answer) if pair.is_response else pair.answer
    try:
        verdict = await judge(
            answer or "", expression_of(pair.truth), timeout_s=_TIMEOUT_S, must_be_evaluated=pair.must_be_evaluated
        )
    except ScoringError as error:
        progress(f"no verdict: {pair}: {error}")
        return not pair.is_right
    return verdict.is_right


async def _hanging_batch(size: int) -> tuple[float, int, int]:
    """Returns seconds, how many were not judged, and how many of the right half were found right."""
    progress(f"a batch of {size}, half of which hangs")
    hanging = endless_answers(size // 2)
    right = [f"x + {n}" for n in range(size // 2)]
    asked = [
        pair for pairs in zip(hanging, ((f"{n} + x", t) for n, t in enumerate(right)), strict=True) for pair in pairs
    ]
    started = time.perf_counter()
    verdicts = await asyncio.gather(*(judge(answer, truth, timeout_s=_TIMEOUT_S) for answer, truth in asked))
    elapsed_s = time.perf_counter() - started
    assert not any(verdict.is_right for verdict in verdicts[0::2])
    unjudged = sum(not verdict.is_judged for verdict in verdicts)
    return elapsed_s, unjudged, sum(verdict.is_right for verdict in verdicts[1::2])


async def _quick_us() -> float:
    pairs = [(text, str(n)) for n in (8_163, 123_456, -70_219) for text in spellings(n)]
    times: list[float] = []
    for _ in range(9):
        started = time.perf_counter()
        for answer, truth in pairs:
            await judge(answer, truth, timeout_s=_TIMEOUT_S)
        times.append((time.perf_counter() - started) / len(pairs))
    return statistics.median(times) * 1e6


def _other_figures(parts: dict[str, list[Pair]]) -> dict[str, float]:
    """Returns false negatives and positives of other verifiers, without the pairs that demand evaluation."""
    from _other_verifiers import VERIFIERS, verdicts_of

    pairs = [pair for part in parts.values() for pair in part if not pair.must_be_evaluated]
    of_models = [pair.is_response for pair in pairs]
    models = [pair for pair in pairs if pair.is_response]
    figures: dict[str, float] = {
        "others_right_pairs": _num_right(pairs),
        "others_wrong_pairs": len(pairs) - _num_right(pairs),
    }
    for name in VERIFIERS:
        progress(f"{name}: {len(pairs)} pairs")
        verdicts = verdicts_of(name, pairs)
        num_missed, num_paid = _missed(pairs, verdicts)
        num_missed_models, _ = _missed(models, list(compress(verdicts, of_models)))
        figures |= {
            f"{name}_false_negatives": num_missed,
            f"{name}_false_positives": num_paid,
            f"{name}_model_false_negative_share": round(num_missed_models / _num_right(models), 4),
        }
    return figures


if __name__ == "__main__":
    sys.exit(main())
