"""Runs the benchmarks and compares their ratios with the accepted ones: `make bench`.

Fails when a benchmark misses a target, does not end, or has a ratio that is more than 15 % worse than the accepted
one. A benchmark that fails runs once more, and its better ratios count: a busy machine is no regression. A ratio is
better when it is lower, unless its target says otherwise.

`--accept` writes the ratios of this run to `benchmarks/accepted.json`; commit that file with the change that explains
them. Left out, because they need many minutes or other environments: `soak_sandbox`, `rollout_server`, `engines`,
`cluster`, `env_server`, `first_hour`, `gpu`, `graders`, `house`, `rollout_path`, `search_recall`, `shared_prompts`,
`step_cost`, `tool_calls`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _report import progress

_FOLDER = Path(__file__).parent
_ACCEPTED = _FOLDER / "accepted.json"
_ALL = (
    *("import_time", "advantages", "dynamic_sampling", "env_loop", "trajectory_log", "rewards", "math_verifier"),
    *("code_verifier", "data_check", "faults", "gateway", "sandbox", "swe", "swe_cheats", "viewer"),
)
_MAX_WORSE, _OF_BOUND = 0.15, 0.02
"""Shares of the accepted ratio, and of the target's bound: ratios far below their bound vary more."""
_MAX_RUNS, _TIMEOUT_S = 2, 1_800


def main() -> int:
    """Runs the benchmarks and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks to run; default: {' '.join(_ALL)}")
    parser.add_argument("--accept", action="store_true", help="write the ratios to accepted.json")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(_ALL)):
        parser.error(f"unknown benchmarks, got {unknown}; known: {' '.join(_ALL)}")
    accepted = json.loads(_ACCEPTED.read_text()) if _ACCEPTED.exists() else {}
    failures: list[str] = []
    for name in options.names or _ALL:
        before = {} if options.accept else accepted.get(name, {}).get("ratios", {})
        lines, problems = [], ["it has not run"]
        while problems and len(lines) < _MAX_RUNS:
            progress(f"== {name}" + (f", once more: {'; '.join(problems)}" if lines else ""))
            lines.append(_run(name))
            problems = problems_of(lines, before)
        failures += [f"{name}: {problem}" for problem in problems]
        if lines[-1]:
            accepted[name] = {key: lines[-1][key] for key in ("ratios", "commit")}
    if options.accept:
        _ACCEPTED.write_text(json.dumps(accepted, indent=2, sort_keys=True) + "\n")
        progress(f"written: {_ACCEPTED}")
    for failure in failures:
        progress(f"FAILED {failure}")
    return 1 if failures else 0


def problems_of(lines: Sequence[Mapping[str, Any]], accepted: Mapping[str, float | None]) -> list[str]:
    """Returns what is wrong with a benchmark, judged by the best of its runs.

    Args:
        lines: what each run printed; empty for a run that failed.
        accepted: ratios to compare with.
    """
    ran = [line for line in lines if line]
    if not ran:
        return ["it printed no result"]
    targets = {key: [line["targets"][key] for line in ran] for key in ran[0]["targets"]}
    problems = [
        f"{key} is {verdicts[-1]['value']}, the target is {verdicts[-1]['target']}"
        for key, verdicts in targets.items()
        if all(verdict["ok"] is False for verdict in verdicts) and "(goal)" not in verdicts[-1]["target"]
    ]
    for key, before in accepted.items():
        target = targets[key][-1]["target"] if key in targets else "<= 0"
        sign, bound = (-1 if target.startswith(">=") else 1), float(target.split()[1])
        if key not in ran[-1]["ratios"]:
            problems.append(f"{key} is not printed any more; run `make bench-accept` if that is meant")
            continue
        values = [sign * line["ratios"][key] for line in ran if line["ratios"][key] is not None]
        slack = max(_MAX_WORSE * abs(before or 0.0), _OF_BOUND * abs(bound))
        if before is not None and values and min(values) > sign * before + slack:
            problems.append(f"{key} is {sign * min(values)}, more than 15 % worse than the accepted {before}")
    return problems


def _run(name: str) -> dict[str, Any]:
    """Runs a benchmark and returns what it printed; empty when it printed nothing."""
    try:
        done = subprocess.run(
            [sys.executable, str(_FOLDER / f"{name}.py")], stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {}
    lines = done.stdout.splitlines()
    print(*lines[-1:], sep="\n", flush=True)
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


if __name__ == "__main__":
    sys.exit(main())
