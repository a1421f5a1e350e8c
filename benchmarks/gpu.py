"""Proves the plugin on the GPU of this machine; without a GPU, rehearses the proof on the CPU with tiny models.

    make gpu-check PYTHON=/path/to/python      (runs python benchmarks/gpu.py)

| check | what it tests |
|---|---|
| machine | `verl-agentic doctor`; the rates of the GPU |
| tensors | every estimator, loss and metric against the CPU; host reads of every loss |
| engine | the rollout engine against transformers, also after an update; tokens per second; memory |
| trainer | verl's FSDP engine: log-probs against the rollout engine, gradients by token, long rows, speed |
| quickstart | `verl-agentic quickstart`: SFT and GRPO through verl's trainers |
| vllm | the same with verl's rollout on vLLM |
| overhead | generation with `env_agent` against verl's `tool_agent` |
| real_model | SmolLM2-135M on everyday questions: success, seconds of a step, of the start, of the rollouts |

Each check is a process with a share of `--minutes`. Time that a check leaves goes to those after it. A check writes its
figures to `OUT/NAME.json` as it measures, its log to `OUT/NAME.log`. A check that is out of time is ended and keeps
what it has; its processes may take 20 s to end.

The exit code is 1 if a bound is missed, a check fails or a check is out of time. `not tested` and `skipped` are no
failures, and no successes: the output says what to do. A CPU does not judge speed.

It needs torch and this package with its extra `cpu`; `tensors` needs pytest and hypothesis.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _gpu_check import read_result, write_result
from _report import commit

try:
    from verl_agentic.cpu.quickstart.child_process import (
        ChildFailedError,
        MemoryMeter,
        run_child,
        termination_as_interrupt,
    )
except ModuleNotFoundError as error:
    raise SystemExit(
        f"the checks need the package {error.name}, got {sys.executable} without it; install this checkout there with "
        "`-m pip install -e '.[cpu]'`, which keeps an installed torch, or name another: make gpu-check PYTHON=..."
    ) from None

SHARES = {
    "machine": 12,
    "tensors": 8,
    "engine": 14,
    "trainer": 20,
    "quickstart": 22,
    "vllm": 16,
    "overhead": 8,
    "real_model": 30,
}
"""Check -> its share of the time, in the order in which they run."""
CHECKS = Path(__file__).with_name("gpu_checks")
_PROCESS = Path(__file__).with_name("_gpu_process.py")
_MINUTES = {"cuda": 8, "cpu": 30}
"""Limit by device. A rehearsal takes a third of it, unless other work keeps the CPU busy."""
_FAILURES = ("missed", "failed", "cut")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the checks and returns the exit code."""
    options = _read_options(argv)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    names, statuses = list(dict.fromkeys(options.only)), {}
    with termination_as_interrupt():
        for position, name in enumerate(names):
            shares = [SHARES[other] for other in names[position:]]
            limit_s = max(end - time.monotonic(), 0) * shares[0] / sum(shares)
            statuses[name] = run_check(name, options.device, out, limit_s=limit_s)
    print(f"{options.device}: " + ", ".join(f"{name} {status}" for name, status in statuses.items()), flush=True)
    print(f"written: {out}", flush=True)
    return 1 if any(status in _FAILURES for status in statuses.values()) else 0


def run_check(name: str, device: str, out: Path, *, limit_s: float) -> str:
    """Runs a check in a process of its own, and prints its verdicts as it writes them.

    Returns:
        `passed`; `missed`: a bound; `failed`: it ended with an error; `cut`: it was out of time; `skipped`;
        `not tested`: it judged no value.
    """
    print(f"== {name} on {device}, at most {limit_s:.0f} s", flush=True)
    (out / f"{name}.json").unlink(missing_ok=True)
    cpu_s = _read_cpu_s()
    begin, printer, failure, error = time.monotonic(), _VerdictPrinter(out, name), "", ""

    def poll() -> None:
        printer.print_new()
        if time.monotonic() - begin > limit_s:
            raise _OutOfTimeError

    meter = MemoryMeter()
    try:
        run_child(
            [sys.executable, str(_PROCESS), str(CHECKS / f"{name}.py"), device, str(out)],
            log=out / f"{name}.log",
            environment={"VERL_PLATFORM": "nvidia" if device == "cuda" else "cpu", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            meter=meter,
            on_poll=poll,
        )
    except _OutOfTimeError:
        failure, error = "cut", f"out of time after {limit_s:.0f} s; raise --minutes, or name fewer checks with --only"
    except ChildFailedError as cause:
        failure, error = "failed", str(cause)
    finally:
        meter.stop()
    printer.print_new()
    result = {"check": name, "device": device, "verdicts": [], "figures": {}, **read_result(out, name)}
    status = failure or _judge(result)
    seconds = {"seconds": round(time.monotonic() - begin, 1), "cpu_seconds": round(_read_cpu_s() - cpu_s, 1)}
    result |= {"status": status, "error": error, **seconds, "commit": commit()}
    write_result(out, result)
    _print_result(result)
    return status


def _read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="default: the GPU, if any")
    parser.add_argument("--minutes", type=float, help="for all checks together (default: 8, and 30 on a CPU)")
    parser.add_argument("--only", nargs="+", choices=SHARES, default=list(SHARES), metavar="NAME", help="checks to run")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the results (%(default)s)")
    options = parser.parse_args(argv)
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes must be positive, got {options.minutes:g}; the checks need 8 on a GPU")
    if options.device != "cpu":
        import torch

        has_gpu = torch.cuda.is_available()
        if options.device == "cuda" and not has_gpu:
            parser.error(f"--device cuda needs a GPU, got torch {torch.__version__} that sees none; use --device cpu")
        options.device = "cuda" if has_gpu else "cpu"
    options.minutes = options.minutes or _MINUTES[options.device]
    return options


def _judge(result: dict[str, Any]) -> str:
    """Returns the status of a check that ran to its end."""
    judged = [verdict["ok"] for verdict in result["verdicts"] if verdict["ok"] is not None]
    if not all(judged):
        return "missed"
    if result.get("skipped"):
        return "skipped"
    return "passed" if judged else "not tested"


class _VerdictPrinter:
    """Prints each verdict of a check once."""

    def __init__(self, out: Path, name: str) -> None:
        self._out, self._name, self._num_printed = out, name, 0

    def print_new(self) -> None:
        verdicts = read_result(self._out, self._name).get("verdicts", [])
        for verdict in verdicts[self._num_printed :]:
            word = {True: "ok", False: "MISSED", None: "not tested"}[verdict["ok"]]
            print(f"   {word:10} {verdict['name']}: {verdict['value']:.4g} ({verdict['target']})", flush=True)
        self._num_printed = len(verdicts)


def _print_result(result: dict[str, Any]) -> None:
    for name, value in result["figures"].items():
        print(f"              {name}: {str(value)[:200]}")
    for text in (result.get("skipped"), result["error"]):
        if text:
            print("   " + text.replace("\n", "\n   "))
    spent = f"{result['seconds']:.0f} s, {result['cpu_seconds']:.0f} s of CPU time"
    print(f"== {result['check']}: {result['status']} in {spent}", flush=True)


def _read_cpu_s() -> float:
    """Returns the CPU time of all descendants that have ended; not of those whose parent ended first."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _OutOfTimeError(Exception):
    """A check has used its time."""


if __name__ == "__main__":
    raise SystemExit(main())
