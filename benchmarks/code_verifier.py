"""Judges answers with programs that are known to be right or wrong, in sandboxes.

`false_negatives`, `false_positives`: right programs that were found wrong, and wrong ones that were found right.

`styles`: ways in which programs are written: how they read, write and end, and how the answer presents them.

`left_out`: programs in need of a package or language that the sandboxes do not have.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from _report import Target, progress, report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rewards"))
from code_programs import (  # pyright: ignore[reportMissingImports]
    Program,
    is_found_right,
    make_programs,
    sandboxes,
)

_AT_ONCE = 4


def main() -> int:
    """Runs the measurement and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each style with one problem")
    options = parser.parse_args()
    programs = make_programs(rounds=1 if options.quick else 4)
    started = time.perf_counter()
    verdicts, lacking = asyncio.run(_verdicts(programs))
    elapsed_s = time.perf_counter() - started
    missed = [program for program, is_right in verdicts if program.is_right != is_right]
    for program in missed:
        progress(f"{'false negative' if program.is_right else 'false positive'}: {program}")
    right = [program for program, _ in verdicts if program.is_right]
    return report(
        "code_verifier",
        ratios={},
        figures={
            "right_programs": len(right),
            "wrong_programs": len(verdicts) - len(right),
            "styles": len({program.style for program in right}),
            "false_negatives": sum(program.is_right for program in missed),
            "false_positives": sum(not program.is_right for program in missed),
            "left_out": len(programs) - len(verdicts),
            "lacking": sorted(lacking),
            "programs_per_s": round(len(verdicts) / elapsed_s, 1),
        },
        targets={
            "right_programs": Target(bound=150 if options.quick else 300),
            "wrong_programs": Target(bound=150),
            "styles": Target(bound=15),
            "false_negatives": Target(bound=0, at_least=False),
            "false_positives": Target(bound=0, at_least=False),
        },
    )


async def _verdicts(programs: list[Program]) -> tuple[list[tuple[Program, bool]], frozenset[str]]:
    """Returns every program that can run here with its verdict, and what the sandboxes lack for the others."""
    progress(f"{len(programs)} programs")
    async with sandboxes(_AT_ONCE) as (pool, lacking):
        chosen = [program for program in programs if program.needs not in lacking]
        found = await asyncio.gather(*(is_found_right(program, pool) for program in chosen))
    return list(zip(chosen, found, strict=True)), lacking


if __name__ == "__main__":
    sys.exit(main())
