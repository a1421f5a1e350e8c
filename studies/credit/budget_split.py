"""Divides one budget of tokens between SFT and RL, and prints the success on held-out tasks for each share of SFT.

python studies/credit/budget_split.py [--budget 500000] [--shares 0.2 0.5 0.8] [--recipe quickstart] [--quick]

The question is that of https://arxiv.org/abs/2510.01132 (the ratio of SFT to RL at a fixed budget); the unit is ours.
A token of SFT is one of a demonstration, with its prompt. A token of RL is one that the policy sampled. Finished
trainings are not repeated. `--quick` spends a few tokens and shows only that it runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # _report

from _credit_methods import named
from _credit_runs import Size, Trial, WarmStart
from _report import progress, report

from verl_agentic.cpu.quickstart.stages import SftStage
from verl_agentic.log.files.record_files import read_json_lines

_SFT_BATCH = 32
(_GRPO,) = named(["grpo"])
_MAX_STEPS = 10_000  # the budget ends a training


class Split(WarmStart):
    """SFT for a number of tokens."""

    def __init__(self, out: Path, recipe: str, size: Size, *, tokens: float) -> None:
        super().__init__(out, recipe, size)
        self._tokens = tokens

    def _sft(self) -> SftStage:
        lengths = [len(row["input_ids"]) for _, row in read_json_lines(self.out / "data" / "sft.jsonl")]
        steps = max(1, round(self._tokens / (statistics.mean(lengths) * _SFT_BATCH)))
        return SftStage(name="sft", steps=steps, overrides=(f"data.train_batch_size={_SFT_BATCH}",))


def run_share(out: Path, share: float, args: argparse.Namespace) -> Mapping[str, Any]:
    """Returns the result of the training after SFT with a share of the budget."""
    progress(f"{out}: {share:g} of {args.budget} tokens for SFT")
    size = Size(
        sft_steps=None,
        max_tokens=round((1 - share) * args.budget),
        max_steps=1 if args.quick else _MAX_STEPS,
        num_tasks=64 if args.quick else 2_000,
        eval_tasks=8 if args.quick else 256,
        num_demos=64 if args.quick else None,
    )
    start = Split(out / "sft", args.recipe, size, tokens=share * args.budget)
    start.make()
    return Trial(out / "rl", args.recipe, size, method=_GRPO, seed=args.seed, start=start.out).make()


def main() -> int:
    """Runs all shares; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("outputs/budget_split"), help="folder (default %(default)s)")
    parser.add_argument("--recipe", default="quickstart", help="a recipe with a course (default %(default)s)")
    parser.add_argument("--budget", type=int, default=500_000, help="tokens of SFT and RL together")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.2, 0.5, 0.8], help="shares of SFT")
    parser.add_argument("--seed", type=int, default=0, help="of RL")
    parser.add_argument("--quick", action="store_true", help="a few tokens: shows that it runs")
    args = parser.parse_args()
    if args.quick:
        args.budget, args.shares = 20_000, args.shares[:1]
    if not all(0 < share < 1 for share in args.shares):
        parser.error(f"shares lie between 0 and 1, got {args.shares}")
    found = {share: run_share(args.out.resolve() / f"{share:g}", share, args) for share in args.shares}
    print("| share of SFT | tokens of RL | success after SFT | success after RL |\n" + "|---" * 4 + "|")
    for share, result in found.items():
        print(f"| {share:g} | {result['tokens']:.0f} | {result['success_sft']:.3f} | {result['success_rl']:.3f} |")
    figures = {f"success_rl.{share:g}": result["success_rl"] for share, result in found.items()}
    return report("budget_split", ratios={}, figures=figures, targets={})


if __name__ == "__main__":
    sys.exit(main())
