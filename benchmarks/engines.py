"""Measures both engines of rollouts on a CPU, on the same requests and in the same training: ours and vLLM's CPU build.

`vs_vllm_cpu`: tokens per second on 64 greedy requests, over vLLM's. Each engine is a process of its own, in which it
also starts (`startup_s`, imports included) and takes memory (`memory_gb`). They serve in turn.

`step_vs_vllm`: seconds of a step of GRPO with vLLM's server, over those with ours. Both train the model of the
quickstart with its recipe, from random weights. The first step is left out: it waits for the servers' first request.

`--layers N`, instead: milliseconds of a decoding step of 128 rows of a narrow model with N layers and 49,152 tokens,
and `decode_vs_other`: those of another checkout (`--against`) over them.

`--model smollm2`, instead: the pretrained model of the quickstart on 64 greedy requests of its task (8 prompts, each
for a group of 8, and 16 to 64 new tokens), in float32. Seconds are CPU seconds of the engines.
`vs_hf_generate`: tokens per second over those of transformers' `generate`, which gets all requests in one batch,
padded on the left. `memory_vs_weights_and_cache`: memory of our engine without mapped files, over weights and cache.

Without vLLM all of its figures are null. `--vllm-python` names an interpreter that has it; both trainings use that one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _engine_process import EngineProcess, default_vllm_python, start_vllm
from _narrow_model import VOCAB_SIZE, make_narrow_model
from _real_requests import make_real_requests, weights_and_cache_gb
from _report import Target, median, progress, report
from rollout_server import make_requests

from verl_agentic.base.errors import AgenticError
from verl_agentic.base.paths import recipes_dir
from verl_agentic.cpu.model_fetch.fetch import model_folder
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT, MemoryMeter, run_child
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.tiny_model import DEFAULT_PRESET, PRESETS, make_tiny_model
from verl_agentic.data.prepare import make_rows
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import write_rows

_ENGINES = ("agentic", "vllm")
_REPEATS, _STEPS = 5, 6
_DECODED = 47
_TIMES = ("step", "gen", "update_weights")


@dataclass
class Result:
    """The figures of the report; those of vLLM are null, with a reason, where it cannot run."""

    ratios: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="fewer new tokens, and 3 steps of training; with --model: one group"
    )
    parser.add_argument("--preset", choices=sorted(PRESETS), default=DEFAULT_PRESET, help="size of the model")
    parser.add_argument(
        "--vllm-python", default=default_vllm_python(sys.executable), help="interpreter that has vLLM (%(default)s)"
    )
    parser.add_argument("--layers", type=int, help="measure decoding with a vocabulary of real size instead")
    parser.add_argument("--model", choices=("smollm2",), help="measure serving of a pretrained model instead")
    parser.add_argument("--against", type=Path, help="with --layers: another checkout (git worktree)")
    options = parser.parse_args()
    if options.layers:
        return _decode(options.layers, options.against)
    if options.model:
        return _serve_pretrained(options)
    result = Result()
    with tempfile.TemporaryDirectory(prefix="engines_") as folder:
        result.figures["parameters"] = make_tiny_model(Path(folder) / "model", preset=options.preset)
        _serve(Path(folder) / "model", options, result)
        _train(Path(folder), options, result)
    return report(
        "engines",
        ratios=result.ratios,
        figures=result.figures,
        targets={"vs_vllm_cpu": Target(bound=1.0, is_goal=True), "step_vs_vllm": Target(bound=1.0, is_goal=True)},
        reasons=result.reasons,
    )


def _decode(num_layers: int, against: Path | None) -> int:
    """Measures decoding alone, and reports."""
    rng = random.Random(0)
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(60)] for _ in range(128)]
    checkouts = {"other": against, "this": Path(__file__).parent.parent}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="engines_") as folder, contextlib.ExitStack() as stack:
        figures["parameters"] = make_narrow_model(Path(folder), num_layers=num_layers)
        engines = {}
        for name, checkout in checkouts.items():
            if checkout is not None:
                variables = {"PYTHONPATH": str(checkout.resolve()), "TEMPERATURE": "1.0"}
                for count in (1, 1 + _DECODED):
                    requests = [(prompt, count) for prompt in prompts]
                    engine = EngineProcess(sys.executable, "_agentic_side.py", Path(folder), requests, **variables)
                    stack.callback(engine.close)
                    engines[name, count] = engine
        steps_ms: dict[str, list[float]] = {}
        for repeat in range(-1, _REPEATS):  # the first warms up
            for name in dict.fromkeys(name for name, _ in engines):
                first_s, all_s = (engines[name, count].run() for count in (1, 1 + _DECODED))
                steps_ms.setdefault(name, []).append(1e3 * (all_s - first_s) / _DECODED)
            told = ", ".join(f"{name} {steps[-1]:.1f}" for name, steps in steps_ms.items())
            progress(f"decoding, {repeat + 1} of {_REPEATS}: {told} ms a step")
    figures |= {f"{name}.step_ms": median(steps[1:]) for name, steps in steps_ms.items()}
    ratio = None
    if against is not None:
        ratio = median([other / this for other, this in zip(steps_ms["other"][1:], steps_ms["this"][1:], strict=True)])
    return report(
        "engines",
        ratios={"decode_vs_other": ratio},
        figures=figures,
        targets={"decode_vs_other": Target(bound=3.0, is_goal=True)},
        reasons={} if against else {"decode_vs_other": "name another checkout with --against"},
    )


def _serve_pretrained(options: argparse.Namespace) -> int:
    """Measures our engine, vLLM and transformers with a pretrained model, and reports."""
    course = load_course(options.model)
    result = Result()
    with tempfile.TemporaryDirectory(prefix="engines_") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        shutil.copytree(model_folder(options.model, dtype="bfloat16"), folder, dirs_exist_ok=True)
        requests = make_real_requests(course, folder, quick=options.quick)
        starts: dict[str, Callable[[], EngineProcess]] = {
            "agentic": lambda: EngineProcess(
                sys.executable, "_agentic_side.py", folder, requests, OUTPUTS=str(folder / "agentic.json")
            ),
            "hf": lambda: EngineProcess(
                sys.executable, "_hf_side.py", folder, requests, OUTPUTS=str(folder / "hf.json")
            ),
            "vllm": lambda: start_vllm(options.vllm_python, folder, requests),
        }
        for engine_name, start in starts.items():
            names = [f"{engine_name}.{figure}" for figure in ("tokens_per_cpu_s", "memory_gb")]
            try:
                engine = start()
            except RuntimeError as error:
                result.figures |= dict.fromkeys(names)
                result.reasons |= dict.fromkeys(names, str(error))
                continue
            stack.callback(engine.close)
            speed = sum(count for _, count in requests) / engine.run_cpu_s()
            result.figures |= dict(zip(names, (median([speed]), median([engine.own_memory_gb()])), strict=True))
            progress(f"{engine_name}: {speed:.1f} tokens per CPU second")
            engine.close()
        outputs = [json.loads((folder / f"{name}.json").read_text()) for name in ("agentic", "hf")]
        num_same = sum(ours == theirs for ours, theirs in zip(*outputs, strict=True))
        result.figures["same_output_as_hf"] = median([num_same / len(requests)])
        figures = weights_and_cache_gb(folder, requests)
    for other, name in {"hf": "vs_hf_generate", "vllm": "vs_vllm_cpu"}.items():
        theirs = result.figures[f"{other}.tokens_per_cpu_s"]
        result.ratios[name] = None if theirs is None else median([result.figures["agentic.tokens_per_cpu_s"] / theirs])
        if theirs is None:
            result.reasons[name] = result.reasons[f"{other}.tokens_per_cpu_s"]
    memory = result.figures["agentic.memory_gb"] / sum(figures.values())
    result.ratios["memory_vs_weights_and_cache"] = median([memory])
    return report(
        "engines",
        ratios=result.ratios,
        figures=result.figures | figures,
        targets={
            "vs_vllm_cpu": Target(bound=1.0, is_goal=True),
            "vs_hf_generate": Target(bound=2.5, is_goal=True),
            "memory_vs_weights_and_cache": Target(bound=1.5, at_least=False, is_goal=True),
        },
        reasons=result.reasons,
    )


def _serve(model: Path, options: argparse.Namespace, result: Result) -> None:
    """Measures tokens per second, start-up and memory."""
    requests = [(request.prompt_ids, request.new_tokens) for request in make_requests(quick=options.quick)]
    total = sum(count for _, count in requests)
    starts: dict[str, Callable[[], EngineProcess]] = {
        "agentic": lambda: EngineProcess(sys.executable, "_agentic_side.py", model, requests),
        "vllm": lambda: start_vllm(options.vllm_python, model, requests),
    }
    running: dict[str, EngineProcess] = {}
    speeds: dict[str, list[float]] = {}
    try:
        for name, start in starts.items():
            try:
                running[name] = start()
            except RuntimeError as error:
                for figure in ("startup_s", "tokens_per_s", "memory_gb"):
                    result.figures[f"{name}.{figure}"], result.reasons[f"{name}.{figure}"] = None, str(error)
        for repeat in range(-1, _REPEATS):  # the first warms up
            for name, engine in running.items():
                speeds.setdefault(name, []).append(total / engine.run())
            told = ", ".join(f"{name} {speed[-1]:.0f}" for name, speed in speeds.items())
            progress(f"requests, {repeat + 1} of {_REPEATS}: {told} tokens/s")
        for name, engine in running.items():
            result.figures[f"{name}.startup_s"] = median([engine.startup_s])
            result.figures[f"{name}.tokens_per_s"] = median(speeds[name][1:])
            result.figures[f"{name}.memory_gb"] = median([engine.memory_gb()])
    finally:
        for engine in running.values():
            engine.close()
    pairs = zip(*(speeds[name][1:] for name in running), strict=True)
    ratio = median([pair[0] / pair[1] for pair in pairs]) if len(running) == len(starts) else None
    result.ratios["vs_vllm_cpu"] = ratio
    if ratio is None:
        result.reasons["vs_vllm_cpu"] = result.reasons["vllm.tokens_per_s"]


def _train(folder: Path, options: argparse.Namespace, result: Result) -> None:
    """Measures the steps of a training with each engine."""
    rows = make_rows(load_env_package("python_math"), split="train", count=64, seed=0, options=None)
    write_rows(rows, folder / "rows.jsonl")
    reason = result.reasons.get("vs_vllm_cpu")
    for name in _ENGINES:
        figures = [*(f"{name}.{time}_s" for time in _TIMES), f"{name}.run_memory_gb"]
        if name == "vllm" and reason is not None:
            result.figures |= dict.fromkeys(figures)
            result.reasons |= dict.fromkeys(figures, reason)
            continue
        steps, peak_gb = _run(folder, name, 3 if options.quick else _STEPS, options.vllm_python)
        for time in _TIMES:
            result.figures[f"{name}.{time}_s"] = median([step[f"timing_s/{time}"] for step in steps[1:]])
        result.figures[f"{name}.run_memory_gb"] = median([peak_gb])
        progress(f"training with {name}: {result.figures[f'{name}.step_s']} s a step, {peak_gb:.1f} GB")
    theirs, ours = result.figures["vllm.step_s"], result.figures["agentic.step_s"]
    result.ratios["step_vs_vllm"] = None if theirs is None else median([theirs / ours])
    if theirs is None:
        result.reasons["step_vs_vllm"] = str(reason)


def _run(folder: Path, engine: str, steps: int, python: str) -> tuple[list[dict[str, Any]], float]:
    """Trains; returns the metrics of each step, and the peak memory of all processes in GB."""
    data, metrics = folder / "rows.jsonl", folder / f"{engine}.jsonl"
    overrides = [
        *([] if engine == "agentic" else ["+agentic=cpu_vllm"]),
        f"actor_rollout_ref.model.path={folder / 'model'}",
        *(f"data.{split}_files={data}" for split in ("train", "val")),
        f"trainer.default_local_dir={folder / engine}",
        f"trainer.total_training_steps={steps}",
        "trainer.save_freq=-1",
        "trainer.logger=[file]",
    ]
    meter = MemoryMeter()
    try:
        run_child(
            [*[python, "-m", "verl.trainer.main_ppo", "--config-dir", str(recipes_dir() / "quickstart")],
             *["--config-name", "grpo", *overrides]],
            log=folder / f"{engine}.log",
            environment={**CPU_ENVIRONMENT, "VERL_FILE_LOGGER_PATH": str(metrics)},
            meter=meter,
        )  # fmt: skip
    finally:
        meter.stop()
    records = [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    if len(records) != steps:
        raise AgenticError(f"a training of {steps} steps has logged {len(records)}, see {folder / f'{engine}.log'}")
    return records, meter.peak_bytes / 2**30


if __name__ == "__main__":
    raise SystemExit(main())
