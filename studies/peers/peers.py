"""Trains one model on one tool task with us, with TRL and with ms-swift, and compares the three.

The model is the tiny one of the quickstart, or with `--model smollm2` the pretrained one of its recipe. ms-swift is
left out there: it renders chats with templates of its own, and cannot continue a turn with an observation.

`make peers` makes the environments of the other two. All trainings begin with the SFT model of the quickstart and get
the same rows in the same order, the same tool and the same score. The settings of the others are derived from the
composed recipe (`_peers_settings.py` lists what differs). The trainings take turns, one step each, in reversed order
with every second step. So they see the same load of the machine; who has no turn waits.

`seconds_to_success`: start-up, and all turns up to the step at which success has reached 0.8. Success is that of the
training rows, as the mean of three steps (384 episodes): no row comes twice, so it is the success of the current policy
on new tasks, and no evaluation interrupts a training. At the end, all models are evaluated on the same 256 held-out
tasks with our evaluation.

`peak_memory_gb`: anonymous and shared memory of a training's processes, shared pages counted once. The pages of
libraries, which all trainings map, are left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # before torch: threads that wait must not keep a core

sys.path += [str(Path(__file__).parents[n] / name) for n, name in ((2, "benchmarks"), (1, "credit"))]

from _credit_runs import Size, WarmStart
from _peers_processes import Side, Turn
from _peers_settings import RECIPE, Plan, swift_settings, trl_settings
from _peers_training import SUCCESS, Training, max_difference, read_training
from _report import Target, median, progress, report

from verl_agentic.cpu.quickstart import tasks
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT, MemoryMeter
from verl_agentic.cpu.quickstart.course import load_course

_FOLDER = Path(__file__).parent
_PEERS = {"trl": ("trl", trl_settings), "swift": ("ms-swift", swift_settings)}
"""Name of a side -> its package, and its settings for a recipe."""
_TO_SUCCESS = ("seconds_to_success", "training_s_to_success", "cpu_s_to_success", "steps_to_success")
_COMPARED = (
    *(*_TO_SUCCESS[:3], "start_up_s"),
    *("step_s", "rollout_s", "update_s", "cpu_s_per_step", "peak_memory_gb"),
)
_TARGETS = {
    "observation_tokens_trained_share.ours": Target(bound=0.0, at_least=False),
    "sampled_log_prob_max_diff.ours": Target(bound=1e-4, at_least=False),
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """Amount of work of every side."""

    steps: int
    seeds: int
    sft_steps: int | None
    """None: the recipe's."""
    num_demos: int | None
    """None: the recipe's."""
    eval_tasks: int


_FULL = Work(steps=20, seeds=2, sft_steps=None, num_demos=None, eval_tasks=256)
_QUICK = Work(steps=3, seeds=1, sft_steps=80, num_demos=600, eval_tasks=32)
_MODELS = {
    RECIPE: (RECIPE, tuple(_PEERS), _FULL, _QUICK),
    "smollm2": (
        "smollm2",
        ("trl",),
        Work(steps=10, seeds=1, sft_steps=None, num_demos=None, eval_tasks=96),
        Work(steps=3, seeds=1, sft_steps=1, num_demos=16, eval_tasks=4),
    ),
}
"""Name of a model -> recipe, peers, and amounts of work."""


def main() -> int:
    """Runs all trainings and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps of each side: do all run?")
    parser.add_argument("--model", choices=list(_MODELS), default=RECIPE, help="what is trained (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("outputs/peers"), help="folder (default %(default)s)")
    parser.add_argument(
        "--environments",
        type=Path,
        default=_FOLDER.parents[1] / "build" / "peers",
        help="folder of the environments of `make peers` (default %(default)s)",
    )
    options = parser.parse_args()
    recipe, peers, full_work, quick_work = _MODELS[options.model]
    folder = options.out.resolve() / ("" if recipe == RECIPE else recipe)
    work, out = (quick_work, folder / "quick") if options.quick else (full_work, folder)
    pythons = {side: options.environments / side / "bin" / "python" for side in peers}
    figures: dict[str, Any] = {}
    for side in peers:
        package, _ = _PEERS[side]
        figures[f"version.{side}"] = _version(pythons[side], package)
        if figures[f"version.{side}"] is None:
            parser.error(f"{pythons[side]} has no {package}; run `make peers`, or name other --environments")
    progress("SFT model")
    start = _warm_start(out, recipe, work)
    figures["success_sft"] = start.make()["sampled"]
    trainings: dict[str, list[Training]] = {side: [] for side in ("ours", *peers)}
    loads: list[float] = []
    for seed in range(work.seeds):
        plans = {
            side: Plan(start=start.out, out=out / f"{side}_{seed}", seed=seed, steps=work.steps, recipe_name=recipe)
            for side in trainings
        }
        for side, training in _train(plans, pythons, loads).items():
            trainings[side].append(training)
    figures["load_1min"] = median(loads)
    return _report(start.out, recipe, trainings, figures)


def _train(plans: Mapping[str, Plan], pythons: Mapping[str, Path], loads: list[float]) -> dict[str, Training]:
    """Runs a training of every side, in turns."""
    meter = MemoryMeter()
    sides = {side: _side(side, plan, pythons, meter) for side, plan in plans.items()}
    start_ups: dict[str, Turn] = {}
    try:
        for name, side in sides.items():
            start_ups[name] = side.start()
            progress(f"{name}, seed {plans[name].seed}: started in {start_ups[name].seconds:.1f} s")
        for step in range(plans["ours"].steps):
            for side in list(sides.values())[:: -1 if step % 2 else 1]:
                side.turn()
            loads.append(os.getloadavg()[0])
            seconds = ", ".join(f"{name} {side.turns[-1].seconds:.1f} s" for name, side in sides.items())
            progress(f"step {step + 1}: {seconds}; load {loads[-1]:.1f}")
    except BaseException:
        for side in sides.values():
            side.stop()
        raise
    finally:
        meter.stop()
    return {
        name: read_training(plans[name], side, start_ups[name], is_ours=name == "ours") for name, side in sides.items()
    }


def _side(name: str, plan: Plan, pythons: Mapping[str, Path], meter: MemoryMeter) -> Side:
    shutil.rmtree(plan.out, ignore_errors=True)
    plan.out.mkdir(parents=True)
    if name == "ours":
        command = [
            *[sys.executable, "-m", "verl.trainer.main_ppo"],
            *["--config-dir", str(plan.course.file("grpo").parent), "--config-name", "grpo", *plan.overrides()],
        ]
        environment = {
            **CPU_ENVIRONMENT,
            "VERL_USE_EXTERNAL_MODULES": "_peers_turns",
            "PEERS_FOLDER": str(plan.out),
            "PYTHONPATH": os.pathsep.join([str(_FOLDER), os.environ.get("PYTHONPATH", "")]),
        }
        return Side(plan.out, command=command, environment=environment, meter=meter)
    _, settings = _PEERS[name]
    written = {
        "recipe": plan.recipe_name,
        "env": plan.course.env,
        "model": str(plan.sft),
        "rows": str(plan.start / "data" / "train.jsonl"),
        "out": str(plan.out),
        "config": settings(plan.recipe(), steps=plan.steps, seed=plan.seed),
    }
    path = plan.out / "plan.json"
    path.write_text(json.dumps(written, indent=1))
    command = [str(pythons[name]), str(_FOLDER / f"_peers_{name}.py"), str(path)]
    environment = {**CPU_ENVIRONMENT, "PYTHONPATH": str(_FOLDER.parents[1])}
    return Side(plan.out, command=command, environment=environment, meter=meter)


def _warm_start(out: Path, recipe: str, work: Work) -> WarmStart:
    size = Size(
        sft_steps=work.sft_steps,
        num_demos=work.num_demos,
        eval_tasks=work.eval_tasks,
        **dict.fromkeys(("max_tokens", "max_steps", "num_tasks"), 0),  # of trainings that are not run here
    )
    return WarmStart(out / "start", recipe, size)


def _report(start: Path, recipe: str, trainings: Mapping[str, list[Training]], figures: dict[str, Any]) -> int:
    peers = [side for side in trainings if side != "ours"]
    for side in peers:
        if trainings["ours"][0].prompts != trainings[side][0].prompts:
            raise RuntimeError(f"all sides must get the same prompts, token by token, got others from {side}; "
                               f"compare {side}_0/rows.jsonl with ours_0/log in {start.parent}")  # fmt: skip
    values = {
        side: [_figures(start, recipe, side, seed, one) for seed, one in enumerate(ones)]
        for side, ones in trainings.items()
    }
    ratios: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for side, ones in values.items():
        for name in ones[0]:
            found = [one[name] for one in ones if one[name] is not None]
            figures[f"{name}.{side}"] = median(found) if found else None
            if not found:
                reasons[f"{name}.{side}"] = _reason(name, trainings[side][0])
    for side, name in itertools.product(peers, _COMPARED):
        pairs = [(ours[name], theirs[name]) for ours, theirs in zip(values["ours"], values[side], strict=True)]
        known = [ours / theirs for ours, theirs in pairs if None not in (ours, theirs)]
        ratios[f"{name}_vs_{side}"] = median(known) if known else None
        if not known:
            reasons[f"{name}_vs_{side}"] = _reason(name, trainings[side][0])
    goal = Target(bound=0.8 if recipe == RECIPE else 0.7, at_least=False, is_goal=True)
    targets = {"seconds_to_success_vs_trl": goal, **_TARGETS}
    return report("peers", ratios=ratios, figures=figures, targets=targets, reasons=reasons)


def _reason(name: str, training: Training) -> str:
    if name == "sampled_log_prob_max_diff":
        return "the trainer has no log-probs of its sampler"
    if name == "trained_log_prob_max_diff":
        return "a step has one update, and computes no log-probs before it"
    return f"success has not reached {SUCCESS} in {len(training.steps)} steps"


def _figures(start: Path, recipe: str, side: str, seed: int, training: Training) -> dict[str, Any]:
    steps, count = training.steps, training.steps_to_success()
    observed = sum(step.observation_tokens for step in steps)
    seconds, rollout_s, sft = training.typical("seconds"), training.typical("rollout_s"), start / "sft" / "model"
    figures: dict[str, Any] = dict.fromkeys(_TO_SUCCESS)
    if count is not None:
        trained_s = sum(step.seconds for step in steps[:count])
        trained_cpu_s = sum(step.cpu_s for step in steps[:count])
        amounts = (
            training.start_up.seconds + trained_s,
            trained_s,
            training.start_up.cpu_s + trained_cpu_s,
            count,
        )
        figures = dict(zip(_TO_SUCCESS, amounts, strict=True))
    return {
        **figures,
        "start_up_s": training.start_up.seconds,
        "step_s": seconds,
        "rollout_s": rollout_s,
        "update_s": seconds - rollout_s,
        "cpu_s_per_step": training.typical("cpu_s"),
        "sampled_tokens_per_step": training.typical("sampled_tokens"),
        "observation_tokens_trained_share": sum(s.observation_tokens_trained for s in steps) / max(observed, 1),
        "sampled_log_prob_max_diff": max_difference(sft, training.sampled) if training.sampled else None,
        "trained_log_prob_max_diff": max_difference(sft, training.trained) if training.trained else None,
        "success_held_out": _success_held_out(start, recipe, f"{side}_{seed}", training.model, seed),
        "peak_memory_gb": training.peak_bytes / 1e9,
    }


def _success_held_out(start: Path, recipe: str, name: str, model: Path, seed: int) -> float:
    course = load_course(recipe)
    return tasks.evaluate(course, start, name, model, greedy=False, seed=seed, advance=lambda *_: None)["sampled"]


def _version(python: Path, package: str) -> str | None:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
