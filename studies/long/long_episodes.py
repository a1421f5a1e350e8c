"""Trains one warm-started tiny model on episodes of 9 to 11 turns, of which an early one decides. Compares estimators
of credit at the same number of sampled tokens, with and without rewards for subgoals.

python studies/long/long_episodes.py [--out outputs/long] [--quick] [--only METHOD ...] [--seeds N] [--report]

The task is a quest of `text_game`: three keys lie in the first of five rooms, and one of them opens the last door. A
wrong key is noticed five turns later, too late to return. The demonstrations of the warm start often take a wrong key,
and any of their moves may be a slip.

Every training has a folder of its own under `--out`; finished ones are not run again, so that the same command goes on
after an interruption. `table.md` and the learning curves are written after each of them. `--report` trains nothing.
The gradients of all estimators are compared first, on the same episodes of the warm-started model. Then the first seed
of all methods is trained before the second one of any.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path += [str(Path(__file__).parents[n] / name) for n, name in ((2, "benchmarks"), (1, "credit"))]

from _credit_methods import Method
from _credit_runs import Size
from _credit_study import Planned, Study
from _long_gradient import GradientSize, gradient_table, measure_gradients
from _long_methods import METHODS, named
from _long_table import Results
from _report import progress, report

RECIPE = "../studies/long/long_quest"
"""From the folder of the recipes."""
_SIZE = Size(sft_steps=280, max_tokens=80_000, max_steps=60, num_tasks=96, eval_tasks=128)
_QUICK = Size(sft_steps=10, max_tokens=1_000_000, max_steps=2, num_tasks=24, eval_tasks=8, num_demos=100)
_QUICK_METHODS = ("turn_gae_subgoals", "arpo")
_GRADIENT, _QUICK_GRADIENT = GradientSize(groups=64), GradientSize(groups=4)


def main() -> int:
    """Runs what is not done yet and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="folder (default outputs/long; of --quick, none)")
    parser.add_argument("--quick", action="store_true", help="two methods, one seed, two steps: shows that it works")
    parser.add_argument("--only", nargs="+", default=[], help="names of methods (default all)")
    parser.add_argument("--seeds", type=int, default=3, help="of each method (default %(default)s)")
    parser.add_argument("--report", action="store_true", help="only report what is done")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the children are ended in order
    with tempfile.TemporaryDirectory(prefix="long") as nowhere:
        out = args.out or (Path(nowhere) if args.quick else Path("outputs/long"))
        results, size = Results(), _QUICK if args.quick else _SIZE
        out = out.resolve()
        os.chdir(Path(__file__).parents[2])  # the recipe names its protocol by a relative path
        study = Study("long_episodes", out, sizes={RECIPE: size}, results=results)
        if not args.report:
            chosen = named(_QUICK_METHODS if args.quick else args.only) or METHODS
            start = study.start(RECIPE)
            progress("gradients of all estimators on the same episodes")
            measure_gradients(study.out, start, RECIPE, _QUICK_GRADIENT if args.quick else _GRADIENT)
            study.run(_plan(chosen, seeds=1 if args.quick else args.seeds))
        study.read()
        study.write()
        print(results.markdown(), gradient_table(study.out), sep="\n\n", flush=True)
        return report("long_episodes", ratios=results.ratios(), figures=results.figures(), targets={})


def _plan(methods: Sequence[Method], *, seeds: int) -> Iterator[Planned]:
    """Yields all trainings of the first seed, then of the next."""
    yield from ((RECIPE, method, seed) for seed in range(seeds) for method in methods)


if __name__ == "__main__":
    sys.exit(main())
