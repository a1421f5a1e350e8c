"""Trains a better model from stored trajectories, by rejection sampling and by DPO: the commands of docs/data.md.

For each seed: the quickstart gives a model after SFT, and one after GRPO for comparison. The SFT model tries training
tasks several times. Its solved episodes become rows for SFT, and its best and worst ones pairs for DPO. Both models
are evaluated on held-out tasks. The DPO model also chooses the best of the SFT model's answers.

python benchmarks/walkthrough.py --out outputs/walkthrough [--seeds 0 1] [--quick]

Finished commands are not repeated. `--quick` trains two steps and shows only that the commands run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _report import Target, progress, report

from verl_agentic.cli.quickstart.child_process import CPU_ENVIRONMENT
from verl_agentic.paths import recipe_file

_COMMAND = [sys.executable, "-c", "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"]
_TRAIN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1", "-m"]
_LIMITS = ("max_turns=3", "max_response_tokens=160", "max_context_tokens=224")  # of recipes/quickstart/grpo.yaml
_RFT, _DPO = "rft", "dpo"
_MODULES = {_RFT: "verl.trainer.sft_trainer", _DPO: "verl_agentic.adapters.offline.dpo_trainer"}
_OPTIONS = {
    _RFT: ["optim.lr=5.0e-4", "optim.lr_warmup_steps=10"],
    _DPO: ["optim.lr=1.0e-4", "optim.lr_warmup_steps=10", "data.train_batch_size=16",
           "data.micro_batch_size_per_gpu=16", "+dpo.beta=0.1"],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Size:
    """Numbers of rows, steps and samples of a seed."""

    quickstart: Sequence[str]
    tasks: int
    """Training tasks that the SFT model tries."""
    samples: int
    """Attempts at each, and at each held-out task."""
    steps: int
    """Training steps of rejection sampling and of DPO."""
    solved: str = "acc >= 1"
    """Condition on the attempts of rejection sampling."""
    by: str = "acc"
    """What pairs compare."""


FULL = Size(quickstart=(), tasks=512, samples=8, steps=150)
# A model after two steps solves nothing, so its attempts are compared by their lengths.
QUICK = Size(
    quickstart=("--sft-steps", "2", "--rl-steps", "1", "--eval-tasks", "8"),
    tasks=20,
    samples=2,
    steps=2,
    solved="acc >= 0",
    by="num_response_tokens",
)


class Walk:
    """The commands of one seed."""

    def __init__(self, out: Path, *, seed: int, size: Size) -> None:
        self.out, self.seed, self.size = out, seed, size
        self.sft = out / "quickstart" / "sft" / "model"

    def run(self) -> dict[str, float]:
        """Runs all commands and returns the success of the models on held-out tasks."""
        quickstart = ["quickstart", "--out", self.out / "quickstart", "--seed", self.seed, *self.size.quickstart]
        self._once("quickstart", [*_COMMAND, *quickstart], done=self.out / "quickstart" / "checkpoint" / "config.json")
        data = self.out / "quickstart" / "data"
        rows = (data / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[: self.size.tasks]
        (self.out / "tasks.jsonl").write_text("".join(rows), encoding="utf-8")
        self._evaluate("collect", self.sft, self.out / "tasks.jsonl")
        self._export("sft", "--where", self.size.solved, "--per-prompt", "4")
        self._export("pairs", "--by", self.size.by)
        models = {"sft": self.sft, "grpo": self.out / "quickstart" / "checkpoint"}
        models |= {_RFT: self._train(_RFT, "sft"), _DPO: self._train(_DPO, "pairs")}
        held_out = {name: self._evaluate(name, model, data / "test.jsonl") for name, model in models.items()}
        chosen = ["--select", "--phi", models[_DPO], "--reference", self.sft]
        best = self._evaluate("sft", self.sft, data / "test.jsonl", *chosen)
        most = max(best["pass_at_k"], key=int)
        return {
            **{name: summary["success"]["mean"] for name, summary in held_out.items()},
            "sft_best_of_n": best["selected"]["mean"],
            "sft_pass_at_n": best["pass_at_k"][most],
        }

    def _evaluate(self, name: str, model: Path, rows: Path, *more: Any) -> dict[str, Any]:
        folder = self.out / "evaluations" / name
        with _serving(model) as url:
            options = ["--rows", rows, "--samples", self.size.samples, "--temperature", 1, "--tokenizer", model]
            limits = [option for limit in _LIMITS for option in ("--limit", limit)]
            asked = ["--env", "python_math", "--endpoint", url, "--model", "policy", *options, *limits]
            _call([*_COMMAND, "evaluate", *asked, "--out", folder, *more])
        return json.loads((folder / "summary.json").read_text(encoding="utf-8"))

    def _export(self, shape: str, *more: str) -> None:
        run = self.out / "evaluations" / "collect"
        _call([*_COMMAND, "data", "export", run, "--as", shape, "--out", self._file(shape), *more])

    def _file(self, shape: str) -> Path:
        return self.out / f"{shape}.parquet"

    def _train(self, name: str, shape: str) -> Path:
        """Returns the folder of the trained model."""
        folder = self.out / name
        config = ["--config-dir", recipe_file("quickstart", "sft.yaml").parent, "--config-name", "sft"]
        overrides = [
            f"model.path={self.sft}",
            f"data.train_files={self._file(shape)}",
            f"trainer.default_local_dir={folder}",
            f"trainer.seed={self.seed}",
            f"trainer.total_training_steps={self.size.steps}",
        ]
        command = [*_TRAIN, _MODULES[name], *config, *overrides, *_OPTIONS[name]]
        model = folder / f"global_step_{self.size.steps}" / "huggingface"
        self._once(name, command, done=model / "config.json")
        return model

    def _once(self, name: str, command: Sequence[Any], *, done: Path) -> None:
        if done.exists():
            progress(f"{self.out}: {name} was finished before")
        else:
            _call(command)


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
    seeds, size = (args.seeds[:1], QUICK) if args.quick else (args.seeds, FULL)
    found = {seed: Walk(args.out.resolve() / f"seed_{seed}", seed=seed, size=size).run() for seed in seeds}
    figures = {f"{name}.seed_{seed}": value for seed, walk in found.items() for name, value in walk.items()}
    gains = {f"{name}_over_sft": min(walk[name] - walk["sft"] for walk in found.values()) for name in (_RFT, _DPO)}
    gains["best_of_n_over_sft"] = min(walk["sft_best_of_n"] - walk["sft"] for walk in found.values())
    print("| seed | after SFT | rejection sampling | DPO | best of n by DPO | pass@n | GRPO |\n" + "|---" * 7 + "|")
    columns = ("sft", _RFT, _DPO, "sft_best_of_n", "sft_pass_at_n", "grpo")
    for seed, walk in found.items():
        print(f"| {seed} | " + " | ".join(f"{walk[name]:.3f}" for name in columns) + " |")
    # Success is a mean of 256 tasks with 8 attempts each: its standard error is about 0.02.
    targets = {} if args.quick else {name: Target(bound=0.05) for name in gains}
    return report("walkthrough", ratios={}, figures={**figures, **gains}, targets=targets)


if __name__ == "__main__":
    sys.exit(main())
