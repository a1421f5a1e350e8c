"""Trains one warm-started tiny model with several methods at the same number of sampled tokens, and tabulates what came
of it, with three ablations that must do worse.

python studies/credit/credit_results.py [--out outputs/credit] [--quick] [--only METHOD ...] [--seeds N] [--report]

Every training has a folder of its own under `--out`; finished ones are not run again, so that the same command goes on
after an interruption. `table.md` and the learning curves are written after each of them. `--report` trains nothing.

The ratios are means of success over seeds on held-out tasks: `METHOD_vs_grpo`, and what an ablation does to success.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # _report

from _credit_methods import ABLATIONS, METHODS, Method, named
from _credit_runs import Size
from _credit_study import Planned, Study
from _credit_table import Results
from _report import Target, report

_TASK, _GAME = "quickstart", "text_game"
_SIZES = {
    _TASK: Size(sft_steps=None, max_tokens=64_000, max_steps=60, num_tasks=96, eval_tasks=256),
    _GAME: Size(sft_steps=None, max_tokens=64_000, max_steps=60, num_tasks=96, eval_tasks=256),
}
_QUICK = Size(sft_steps=20, max_tokens=1_000_000, max_steps=2, num_tasks=64, eval_tasks=8, num_demos=200)
_TARGETS = {
    "observations_trained_vs_masked": Target(bound=1.0, at_least=False),
    "failures_score_0_vs_void": Target(bound=1.0, at_least=False),
    "zero_signal_share_filter_acc": Target(bound=0.0, at_least=False),
    "zero_signal_share_filter_reward": Target(bound=0.01),
}


def main() -> int:
    """Runs what is not done yet and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="folder (default outputs/credit; of --quick, none)")
    parser.add_argument("--quick", action="store_true", help="two methods, one seed, two steps: shows that it works")
    parser.add_argument("--only", nargs="+", default=[], help="methods and ablations, on the quickstart's task only")
    parser.add_argument("--seeds", type=int, default=3, help="of each method (default %(default)s)")
    parser.add_argument("--report", action="store_true", help="only tell what is done")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the children are ended in order
    with tempfile.TemporaryDirectory(prefix="credit") as nowhere:
        out = args.out or (Path(nowhere) if args.quick else Path("outputs/credit"))
        results, chosen = Results(), named(["grpo", "gigpo"] if args.quick else args.only)
        sizes = dict.fromkeys(_SIZES, _QUICK) if args.quick else _SIZES
        study = Study("credit_results", out.resolve(), sizes=sizes, results=results)
        if not args.report:
            study.run(_plan(results, seeds=1 if args.quick else args.seeds, chosen=chosen))
        study.read()
        study.write()
        print(results.markdown(), flush=True)
        return _report(results, targets={} if args.quick or chosen else _TARGETS)


def _plan(results: Results, *, seeds: int, chosen: Sequence[Method]) -> Iterator[Planned]:
    """Yields trainings, the most telling first: every method once, then again; ablations; the game; the rest."""
    if chosen:
        yield from ((_TASK, method, seed) for seed in range(seeds) for method in chosen)
        return
    yield from ((_TASK, method, seed) for seed in range(seeds) for method in METHODS)
    yield from ((_TASK, method, 0) for method in ABLATIONS)
    # GRPO is played along: what the others are compared with.
    best = dict.fromkeys([*results.best(_TASK, [m.name for m in METHODS], count=2), "grpo"])
    yield from ((_GAME, method, seed) for seed in range(seeds) for method in named([*best]))
    # Observations are longer there.
    yield from ((_GAME, method, seed) for seed in range(seeds) for method in named(["all_tokens"]))
    yield from ((_TASK, method, seed) for seed in range(1, seeds) for method in ABLATIONS)


def _report(results: Results, *, targets: Mapping[str, Target]) -> int:
    """Prints the closing line; returns the exit code."""
    ratios, figures = results.ratios(), results.figures()
    values = {**ratios, **figures}
    missing = {name: "not all of its trainings are done" for name in targets if values.get(name) is None}
    return report(
        "credit_results",
        ratios={**dict.fromkeys(missing), **ratios},
        figures=figures,
        targets=targets,
        reasons=missing,
    )


if __name__ == "__main__":
    sys.exit(main())
