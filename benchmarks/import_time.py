"""Measures what the plugin adds to `import verl`: CPU time of a fresh process with it, less without it.

Without it means `VERL_USE_EXTERNAL_PLUGINS=none`, verl's own switch; everything else is the same. An adapter is only
imported after the module of verl that it changes, so the import of the whole trainer is measured too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

from _report import Target, median, progress, report

_SIDES = {"with": "verl_agentic", "without": "none"}
_REPEATS = 5
_MEASURES = ("with_cpu_s", "without_cpu_s", "with_wall_s", "without_wall_s", "added_cpu_s")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One import, on one platform."""

    module: str
    platform: str | None


_CASES = {
    "cpu": Case(module="verl", platform="cpu"),
    "unset": Case(module="verl", platform=None),
    "main_ppo": Case(module="verl.trainer.main_ppo", platform=None),
}


def main() -> int:
    """Runs the measurement and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only `import verl` with VERL_PLATFORM=cpu")
    quick = parser.parse_args().quick
    measured: dict[str, float] = {}
    missing: dict[str, None] = {}
    reasons: dict[str, str] = {}
    for name, case in _CASES.items():
        if quick and name != "cpu":
            missing |= {f"{measure}.{name}": None for measure in _MEASURES}
            reasons |= {f"{measure}.{name}": "--quick" for measure in _MEASURES}
        else:
            measured |= _compare(name, case)
    added = [
        measured[key]
        for name, case in _CASES.items()
        if (key := f"added_cpu_s.{name}") in measured and case.module == "verl"
    ]
    return report(
        "import_time",
        ratios={"with_to_without": round(measured["with_cpu_s.cpu"] / measured["without_cpu_s.cpu"], 3)},
        figures={"added_cpu_s": max(added), **measured, **missing},
        targets={"added_cpu_s": Target(bound=1.0, at_least=False)},
        reasons=reasons,
    )


def _compare(name: str, case: Case) -> dict[str, float]:
    for side in _SIDES:
        _import(side, case)  # byte code and file cache
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in _SIDES}
    for repeat in range(_REPEATS):
        for side in _SIDES if repeat % 2 else reversed(_SIDES):
            times[side].append(_import(side, case))
        progress(f"{name}, {repeat + 1} of {_REPEATS}: " + ", ".join(f"{s} {times[s][-1][0]} s CPU" for s in _SIDES))
    pairs = zip(times["with"], times["without"], strict=True)
    return {
        **{f"{side}_cpu_s.{name}": median([cpu for cpu, _ in times[side]]) for side in _SIDES},
        **{f"{side}_wall_s.{name}": median([wall for _, wall in times[side]]) for side in _SIDES},
        # Of neighbours in time: what else the machine does is about the same for both.
        f"added_cpu_s.{name}": median([one[0] - other[0] for one, other in pairs]),
    }


def _import(side: str, case: Case) -> tuple[float, float]:
    """Returns CPU seconds (user and system, with children) and wall seconds of one process."""
    environment = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": _SIDES[side]}
    environment.pop("VERL_PLATFORM", None)
    if case.platform is not None:
        environment["VERL_PLATFORM"] = case.platform
    script = f"import sys, {case.module}; sys.exit('verl_agentic.plugin' not in sys.modules)"
    begin, wall = _children_cpu_s(), time.perf_counter()
    code = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True).returncode
    cpu, wall = _children_cpu_s() - begin, time.perf_counter() - wall
    if code != (side == "without"):
        raise SystemExit(f"`import {case.module}` {side} the plugin ended with code {code}; run `verl-agentic doctor`")
    return round(cpu, 3), round(wall, 3)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
