"""`verl-agentic doctor`: would a run work here, and is the plugin whole?"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from verl_agentic.diagnostics.machine import Check, machine_checks

_DEADLINE_S = 180.0
_REINSTALL = "pip install --force-reinstall --no-deps verl-agentic (in a checkout: pip install -e .)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--timeout", type=float, default=_DEADLINE_S, help="of the plugin's check, in seconds")


def run(args: argparse.Namespace) -> int:
    """Prints all checks; the exit code is 0 when a quickstart would run."""
    probed, failure = _probe(args.timeout)
    checks = [*machine_checks(), *_plugin_checks(probed, failure)]
    is_well = all(check.status != "fail" for check in checks)
    registered = _registered(probed)
    if args.json:
        print(json.dumps({"ok": is_well, "checks": [asdict(c) for c in checks], "registered": registered}))
    else:
        _show(checks, registered, is_well)
    return 0 if is_well else 1


def _probe(timeout_s: float) -> tuple[dict[str, Any], str]:
    """Returns what a fresh process and a Ray worker see, and why that could not be found out."""
    from verl_agentic.adapters import probe

    command = [sys.executable, "-m", "verl_agentic.adapters.probe"]
    # The platform must be named for its adapters to be tried.
    environment = {**os.environ, "VERL_PLATFORM": os.environ.get("VERL_PLATFORM", "cpu")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {timeout_s:g} s"
    finally:
        _end_tree(process)
    found = probe.parse(output)
    return (found, "") if found else ({}, errors.strip().rsplit("\n", 1)[-1] or f"exit code {process.returncode}")


def _end_tree(process: subprocess.Popen[str]) -> None:
    import psutil

    if process.poll() is None:
        for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            child.kill()
        process.wait()


def _plugin_checks(probed: dict[str, Any], failure: str) -> list[Check]:
    if failure:
        return [Check(name="plugin", status="fail", found=failure, advice="python -m verl_agentic.adapters.probe")]
    checks = []
    for place, seen in (("plugin", probed["process"]), ("plugin in a Ray worker", probed["ray_worker"])):
        checks.append(_plugin_check(place, seen))
    for name, hidden in (probed["process"].get("entry_points") or {}).items():
        if hidden is not None and name != "verl_agentic":
            advice = "verl hides this; it does not concern verl_agentic"
            checks.append(Check(name=f"other plugin {name}", status="warn", found=hidden, advice=advice))
    return checks


def _plugin_check(place: str, seen: dict[str, Any]) -> Check:
    if "error" in seen:
        return Check(
            name=place, status="fail", found=seen["error"], advice="reinstall verl: pip install 'verl>=0.9.1,<0.10'"
        )
    hidden = seen["entry_points"].get("verl_agentic", "missing")
    if hidden == "missing":
        return Check(name=place, status="fail", found="no entry point verl_agentic", advice=_REINSTALL)
    if hidden is not None:
        return Check(name=place, status="fail", found=hidden, advice=_REINSTALL)
    if seen.get("failed"):
        found = "; ".join(f"{name}: {cause}" for name, cause in seen["failed"].items())
        return Check(name=place, status="fail", found=found, advice="mend the cause, or " + _REINSTALL)
    if not seen["was_loaded"]:
        policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
        return Check(
            name=place,
            status="fail",
            found=f"verl did not load it, VERL_USE_EXTERNAL_PLUGINS={policy}",
            advice="unset it",
        )
    return Check(name=place, status="ok", found=f"{len(seen['loaded'])} adapters with verl {seen['verl']}")


def _registered(probed: dict[str, Any]) -> list[dict[str, str]]:
    from verl_agentic.plugin import ADAPTERS

    loaded = probed.get("process", {}).get("loaded", [])
    return [
        {"gives": a.gives, "chosen_by": a.chosen_by, "state": "loaded" if a.module in loaded else "not loaded"}
        for a in ADAPTERS
    ]


def _show(checks: list[Check], registered: list[dict[str, str]], is_well: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    marks = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]"}
    table = Table("check", "", "found", "what to do")
    for check in checks:
        table.add_row(check.name, marks[check.status], check.found, check.advice)
    console.print(table)
    table = Table("the plugin gives", "chosen by", "")
    for row in registered:
        table.add_row(row["gives"], row["chosen_by"], row["state"])
    console.print(table)
    console.print("[green]a quickstart would run here" if is_well else "[red]a quickstart would not run here")
