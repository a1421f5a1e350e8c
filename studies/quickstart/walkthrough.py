"""Trains better models from stored trajectories, by rejection sampling and by DPO: the course `from_samples`.

For each seed: the course gives a model after SFT, and models after rejection sampling, DPO and GRPO that begin with it.
All models are evaluated on held-out tasks. The DPO model also chooses the best of the SFT model's answers.

python studies/quickstart/walkthrough.py --out outputs/walkthrough [--seeds 0 1] [--quick]

Finished stages are not repeated. `--quick` trains two steps and shows only that the commands run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # _report

from _report import Target, progress, report

from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.quickstart.phases import Quickstart
from verl_agentic.cpu.quickstart.run_state import QuickstartSettings
from verl_agentic.cpu.quickstart.stage_list import load_stages
from verl_agentic.cpu.quickstart.stages import CourseStage, ExportStage, SampleStage

_COMMAND = [sys.executable, "-c", "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"]
_LIMITS = ("max_turns=3", "max_response_tokens=160", "max_context_tokens=224")  # of recipes/quickstart/grpo.yaml
_RFT, _DPO = "rft", "dpo"


def _quick(stage: CourseStage) -> CourseStage:
    """Returns a stage with few attempts, which a model after two steps does not solve, compared by their numbers."""
    if isinstance(stage, SampleStage):
        return dataclasses.replace(stage, tasks=20, samples=2)
    return dataclasses.replace(stage, where=None, by="session") if isinstance(stage, ExportStage) else stage


class Walk:
    """One seed."""

    def __init__(self, out: Path, *, seed: int, quick: bool) -> None:
        self.out, self.seed, self.quick = out, seed, quick
        self.run_dir = out / "quickstart"

    def run(self) -> dict[str, float]:
        """Runs the course and returns the success of its models on held-out tasks."""
        course, steps = load_course("from_samples"), 2 if self.quick else None
        settings = QuickstartSettings(
            recipe=course.recipe,
            seed=self.seed,
            control=False,
            sft_steps=steps,
            rl_steps=steps,
            eval_tasks=8 if self.quick else 256,
        )
        stages = load_stages(course)
        Quickstart(self.run_dir, settings, stages=[*map(_quick, stages)] if self.quick else stages).run()
        models = {name: self.run_dir / name / "model" for name in ("sft", _RFT, _DPO, "rl")}
        held_out = {name: self._evaluate(name, model) for name, model in models.items()}
        best = self._evaluate("sft", models["sft"], "--select", "--phi", models[_DPO], "--reference", models["sft"])
        most = max(best["pass_at_k"], key=int)
        return {
            **{name: summary["success"]["mean"] for name, summary in held_out.items()},
            "sft_best_of_n": best["selected"]["mean"],
            "sft_pass_at_n": best["pass_at_k"][most],
        }

    def _evaluate(self, name: str, model: Path, *more: Any) -> dict[str, Any]:
        # An evaluation goes on where it ended, so a model that was trained again needs a folder of its own.
        trained = (self.run_dir / name / "fingerprint").read_text()
        folder, rows = self.out / "evaluations" / f"{name}-{trained}", self.run_dir / "data" / "test.jsonl"
        with _serving(model) as url:
            options = ["--rows", rows, "--samples", 2 if self.quick else 8, "--temperature", 1, "--tokenizer", model]
            limits = [option for limit in _LIMITS for option in ("--limit", limit)]
            asked = ["--env", "python_math", "--endpoint", url, "--model", "policy", *options, *limits]
            _call([*_COMMAND, "evaluate", *asked, "--out", folder, *more])
        return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


@contextlib.contextmanager
def _serving(model: Path) -> Iterator[str]:
    """Serves a model and yields the address."""
    command = [*_COMMAND, "serve", "--model", str(model), "--name", "policy", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        try:
            if " at " not in line:
                raise RuntimeError(f"the server did not start, got {line!r}; see the messages above")
            yield line.split(" at ")[1].split(",")[0]
        finally:
            server.terminate()


def _call(command: Sequence[Any]) -> None:
    """Runs a command with its output on standard error."""
    words = list(map(str, command))
    is_own = words[: len(_COMMAND)] == _COMMAND
    shown = ["verl-agentic", *words[len(_COMMAND) :]] if is_own else ["python", *words[1:]]
    progress(f"$ {shlex.join(shown)}")
    subprocess.run(words, check=True, env=_environment(), stdout=sys.stderr)


def _environment() -> dict[str, str]:
    return {**os.environ, **CPU_ENVIRONMENT}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("outputs/walkthrough"), help="write to this folder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="run these seeds")
    parser.add_argument("--quick", action="store_true", help="run one seed with a few steps")
    args = parser.parse_args()
    seeds = args.seeds[:1] if args.quick else args.seeds
    found = {seed: Walk(args.out.resolve() / f"seed_{seed}", seed=seed, quick=args.quick).run() for seed in seeds}
    figures = {f"{name}.seed_{seed}": value for seed, walk in found.items() for name, value in walk.items()}
    gains = {f"{name}_over_sft": min(walk[name] - walk["sft"] for walk in found.values()) for name in (_RFT, _DPO)}
    gains["best_of_n_over_sft"] = min(walk["sft_best_of_n"] - walk["sft"] for walk in found.values())
    print("| seed | after SFT | rejection sampling | DPO | best of n by DPO | pass@n | GRPO |\n" + "|---" * 7 + "|")
    columns = ("sft", _RFT, _DPO, "sft_best_of_n", "sft_pass_at_n", "rl")
    for seed, walk in found.items():
        print(f"| {seed} | " + " | ".join(f"{walk[name]:.3f}" for name in columns) + " |")
    # Success is a mean of 256 tasks with 8 attempts each: its standard error is about 0.02.
    targets = {} if args.quick else {name: Target(bound=0.05) for name in gains}
    return report("walkthrough", ratios={}, figures={**figures, **gains}, targets=targets)


if __name__ == "__main__":
    sys.exit(main())
