"""Judges pairs of answer and ground truth with known verdicts, and a batch of which half hangs in algebra.

`false_negatives`, `false_positives`: right answers that were found wrong, and wrong ones that were found right.

`hanging_batch_s`: wall time of 256 answers that are judged at once, half of them expressions on which symbolic algebra
does not come to an end. All are different, so that none is known from before.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from _report import Target, progress, report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rewards"))
from math_pairs import Pair, endless_answers, make_pairs

from verl_agentic.rewards.answers.boxed_math import expression_of, judge

_TIMEOUT_S = 60.0  # wall time of one verdict; what ends algebra is the limit of its processor time


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pairs, and a smaller batch")
    options = parser.parse_args()
    pairs = make_pairs(rounds=1 if options.quick else 5)
    batch = 32 if options.quick else 256
    with asyncio.Runner() as runner:
        right = runner.run(_verdicts(pairs))
        elapsed_s, num_unjudged, num_paid = runner.run(_hanging_batch(batch))
    missed = [(pair, is_right) for pair, is_right in zip(pairs, right, strict=True) if pair.is_right != is_right]
    for pair, is_right in missed:
        progress(f"{'false positive' if is_right else 'false negative'}: {pair}")
    return report(
        "math_verifier",
        ratios={},
        figures={
            "pairs": len(pairs),
            "right_pairs": sum(pair.is_right for pair in pairs),
            "families": len({pair.family for pair in pairs}),
            "false_negatives": sum(not is_right for _, is_right in missed),
            "false_positives": sum(is_right for _, is_right in missed),
            "hanging_batch": batch,
            "hanging_batch_s": round(elapsed_s, 2),
            "hanging_batch_unjudged": num_unjudged,
            "hanging_batch_right": num_paid,
        },
        targets={
            "pairs": Target(bound=500),
            "false_negatives": Target(bound=0, at_least=False),
            "false_positives": Target(bound=0, at_least=False),
            "hanging_batch_s": Target(bound=60, at_least=False),
            "hanging_batch_right": Target(bound=batch // 2),
        },
    )


async def _verdicts(pairs: list[Pair]) -> list[bool]:
    progress(f"{len(pairs)} pairs")
    verdicts = await asyncio.gather(
        *(
            judge(
                pair.answer, expression_of(pair.truth), timeout_s=_TIMEOUT_S, must_be_evaluated=pair.must_be_evaluated
            )
            for pair in pairs
        )
    )
    return [verdict.is_right for verdict in verdicts]


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


if __name__ == "__main__":
    sys.exit(main())
