"""Trains one warm-started tiny model with several methods at the same number of sampled tokens, and tabulates what came
of it, with three ablations that must do worse.

python benchmarks/credit_results.py [--out outputs/credit] [--quick] [--only METHOD ...] [--seeds N] [--report]

Every training has a folder of its own under `--out`; finished ones are not run again, so that the same command goes on
after an interruption. `table.md` and the learning curves are written after each of them. `--report` trains nothing.

The ratios are means of success over seeds on held-out tasks: `METHOD_vs_grpo`, and what an ablation does to success.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _credit_methods import ABLATIONS, METHODS, Method, named
from _credit_runs import Size, Trial, WarmStart, read_result
from _credit_table import Results, draw
from _report import Target, progress, report

from verl_agentic.cli.quickstart.child_process import ChildFailedError

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
Planned = tuple[str, Method, int]
"""Recipe, method and seed."""


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
        study = Study(out.resolve(), quick=args.quick, seeds=1 if args.quick else args.seeds, only=args.only)
        if not args.report:
            study.run()
        return study.report()


class Study:
    """All trainings, in one folder."""

    def __init__(self, out: Path, *, quick: bool, seeds: int, only: Sequence[str]) -> None:
        self._out = out
        self._sizes = dict.fromkeys(_SIZES, _QUICK) if quick else _SIZES
        self._seeds, self._quick = seeds, quick
        self._chosen = named(["grpo", "gigpo"] if quick else only)
        self._starts: dict[str, dict[str, Any]] = {}
        self.results = Results()

    def run(self) -> None:
        """Trains what has not been trained, and writes the table after each."""
        for number, (recipe, method, seed) in enumerate(self._plan(), start=1):
            progress(f"training {number}: {recipe}, {method.name}, seed {seed}")
            try:
                self.results.add(self._train(recipe, method, seed))
            except ChildFailedError as cause:  # the others are worth having; the same command tries it again
                progress(f"failed: {cause}")
            self._write()

    def report(self) -> int:
        """Prints the table and the closing line; returns the exit code."""
        for path in sorted(self._out.glob("*/*/result.json")):
            self.results.add(read_result(path))
        self._write()
        print(self.results.markdown(), flush=True)
        ratios, figures = self.results.ratios(), self.results.figures()
        wanted = {} if self._quick or self._chosen else _TARGETS
        values = {**ratios, **figures}
        missing = {name: "not all of its trainings are done" for name in wanted if values.get(name) is None}
        return report(
            "credit_results",
            ratios={**dict.fromkeys(missing), **ratios},
            figures=figures,
            targets=wanted,
            reasons=missing,
        )

    def _plan(self) -> Iterator[Planned]:
        """Yields trainings, the most telling first: every method once, then again; ablations; the game; the rest."""
        if self._chosen:
            yield from ((_TASK, method, seed) for seed in range(self._seeds) for method in self._chosen)
            return
        yield from ((_TASK, method, seed) for seed in range(self._seeds) for method in METHODS)
        yield from ((_TASK, method, 0) for method in ABLATIONS)
        # GRPO is played along: what the others are compared with.
        best = dict.fromkeys([*self.results.best(_TASK, [m.name for m in METHODS], count=2), "grpo"])
        yield from ((_GAME, method, seed) for seed in range(self._seeds) for method in named([*best]))
        # Observations are longer there.
        yield from ((_GAME, method, seed) for seed in range(self._seeds) for method in named(["all_tokens"]))
        yield from ((_TASK, method, seed) for seed in range(1, self._seeds) for method in ABLATIONS)

    def _train(self, recipe: str, method: Method, seed: int) -> dict[str, Any]:
        start, size = self._out / "start" / recipe, self._sizes[recipe]
        if recipe not in self._starts:
            self._starts[recipe] = WarmStart(start, recipe, size).make()
        folder = self._out / recipe / f"{method.name}_{seed}"
        return Trial(folder, recipe, size, method=method, seed=seed, start=start).make()

    def _write(self) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        command = " ".join(["python benchmarks/credit_results.py", *sys.argv[1:]])
        (self._out / "table.md").write_text(f"```bash\n{command}\n```\n\n{self.results.markdown()}\n")
        for name, svg in draw(self.results).items():
            (self._out / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    sys.exit(main())
