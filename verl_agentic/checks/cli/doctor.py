"""`verl-agentic doctor`: checks the machine, the versions and the plugin."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from verl_agentic.base.finding import Finding
from verl_agentic.checks.machine import can_use_cuda, list_gpus, machine_checks
from verl_agentic.cli.findings import print_findings
from verl_agentic.cli.options.option_values import positive

_DEADLINE_S = 180.0
_REINSTALL = "pip install --force-reinstall --no-deps verl-agentic (in a checkout: pip install -e .)"
_PLACES = {"process": "plugin", "ray_worker": "plugin in a Ray worker"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--patches", action="store_true", help="list every attribute of verl that the plugin patches")
    parser.add_argument(
        "--timeout", type=positive, default=_DEADLINE_S, help="stop the check after this time, in seconds"
    )


def run(args: argparse.Namespace) -> int:
    """Prints all checks; the exit code is 0 if a quickstart would run."""
    with ThreadPoolExecutor(1) as meanwhile:
        probing = meanwhile.submit(_probe_plugin, args.timeout)
        machine = machine_checks(supported_verl=_read_supported_verl())
        plugin_state, failure = probing.result()
    patches, missing = plugin_state.pop("patches", []), plugin_state.pop("missing_hooks", [])
    checks = [*machine, *_check_plugin_places(plugin_state, failure), *_check_hooks(plugin_state, missing)]
    is_well = all(check.status != "fail" for check in checks)
    adapters = _list_adapters(plugin_state)
    if args.json:
        lines = [{"name": c.check, "status": c.status, "found": c.found, "advice": c.advice} for c in checks]
        report = {"ok": is_well, "checks": lines, "plugin": plugin_state}
        tables = {"registered": adapters, "patches": patches, "missing_hooks": missing}
        print(json.dumps({**report, **tables}, indent=2))
    else:
        _print_report(checks, adapters, is_well, patches=patches, lists_patches=args.patches)
    return 0 if is_well else 1


def _probe_plugin(timeout_s: float) -> tuple[dict[str, Any], str]:
    """Returns the plugin's state in a fresh process and in a Ray worker, the patches, and faults of the probe."""
    from verl_agentic.verl.extensions import plugin_probe

    # The adapters of a platform act only if it is named.
    platform = os.environ.get("VERL_PLATFORM") or ("nvidia" if can_use_cuda() and list_gpus() else "cpu")
    environment = {**os.environ, "VERL_PLATFORM": platform}
    with contextlib.ExitStack() as ending, ThreadPoolExecutor() as waiting:
        probes = []
        for place in _PLACES:  # at once: each of them imports all of verl
            probe = subprocess.Popen(
                [sys.executable, "-m", "verl_agentic.verl.extensions.plugin_probe", place], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
            )  # fmt: skip
            ending.callback(_end_tree, probe)
            probes.append(waiting.submit(_read_probe, probe, timeout_s))
        answers = [probe.result() for probe in probes]
    plugin_state = plugin_probe.parse("\n".join(output for output, _ in answers))
    failures = [failure for place, (_, failure) in zip(_PLACES, answers, strict=True) if place not in plugin_state]
    return plugin_state, next(iter(failures), "")


def _read_probe(process: subprocess.Popen[str], timeout_s: float) -> tuple[str, str]:
    """Returns what a probe prints, and what went wrong if that is too little; ends it at its deadline."""
    try:
        output, errors = process.communicate(timeout=timeout_s)
        return output, errors.strip().rsplit("\n", 1)[-1] or f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        _end_tree(process)
        return process.communicate()[0], f"no answer within {timeout_s:g} s"


def _end_tree(process: subprocess.Popen[str]) -> None:
    import psutil

    if process.poll() is None:
        for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            child.kill()
        process.wait()


def _check_plugin_places(plugin_state: dict[str, Any], failure: str) -> list[Finding]:
    checks = []
    for place, name in _PLACES.items():
        if place in plugin_state:
            checks.append(_check_plugin(name, plugin_state[place]))
        else:
            advice = "run python -m verl_agentic.verl.extensions.plugin_probe to see where it stops"
            checks.append(Finding(check=name, status="fail", found=failure, advice=advice))
    for name, hidden in plugin_state.get("process", {}).get("entry_points", {}).items():
        if hidden is not None and name != "verl_agentic":
            advice = "verl hides this error; verl_agentic does not need the package"
            checks.append(Finding(check=f"other plugin {name}", status="warn", found=hidden, advice=advice))
    return checks


def _check_hooks(plugin_state: dict[str, Any], missing: list[dict[str, str]]) -> list[Finding]:
    """Returns a warning for every hook of verl that the adapters can do without, and that the installed one lacks."""
    return [
        Finding(
            check=f"hook {hook['symbol'].partition(':')[2]}",
            status="warn",
            found=f"verl {plugin_state['process']['verl']} lacks {hook['symbol']}; lost: {hook['lost']}",
            advice=f"pip install 'verl{hook['versions']}'",
        )
        for hook in missing
    ]


def _check_plugin(name: str, plugin_state: dict[str, Any]) -> Finding:
    fault, advice = _find_plugin_fault(plugin_state)
    if fault:
        return Finding(check=name, status="fail", found=fault, advice=advice)
    return Finding(
        check=name, status="ok", found=f"{len(plugin_state['loaded'])} adapters with verl {plugin_state['verl']}"
    )


def _find_plugin_fault(plugin_state: dict[str, Any]) -> tuple[str, str]:
    """Returns the fault and the advice, or two empty strings."""
    if "error" in plugin_state:
        return plugin_state["error"], "python -m verl_agentic.verl.extensions.plugin_probe"
    if "verl_agentic" not in plugin_state["entry_points"]:
        return "no entry point verl_agentic in the group verl.plugins", _REINSTALL
    hidden = plugin_state["entry_points"]["verl_agentic"]
    if hidden is not None:
        return hidden, _REINSTALL
    if not plugin_state["was_loaded"]:
        policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
        return f"verl did not load it, VERL_USE_EXTERNAL_PLUGINS={policy}", "unset VERL_USE_EXTERNAL_PLUGINS"
    if plugin_state["failed"]:
        causes = "; ".join(f"{adapter}: {cause}" for adapter, cause in plugin_state["failed"].items())
        lost_features = [
            row["gives"]
            for row in _list_adapters({"process": {"failed": plugin_state["failed"]}})
            if row["state"] == "failed"
        ]
        lost = f"lost: {', '.join(lost_features)}; " if lost_features else ""
        return causes, f"{lost}fix the cause, or {_REINSTALL}"
    return "", ""


def _read_supported_verl() -> str:
    try:
        from verl_agentic.plugin import SUPPORTED_VERL
    except Exception:  # the check of the plugin names the cause
        return ""
    return SUPPORTED_VERL


def _list_adapters(plugin_state: dict[str, Any]) -> list[dict[str, str]]:
    try:
        from verl_agentic.plugin import ADAPTERS
    except Exception:  # the check of the plugin names the cause
        return []
    process = plugin_state.get("process", {})
    loaded, failed = process.get("loaded", []), process.get("failed", {})

    def state(adapter: str) -> str:
        return "loaded" if adapter in loaded else "failed" if adapter in failed else "not loaded"

    return [
        {"adapter": a.module, "gives": a.gives, "chosen_by": a.chosen_by, "state": state(a.module)} for a in ADAPTERS
    ]


def _print_report(
    checks: list[Finding],
    adapters: list[dict[str, str]],
    is_well: bool,
    *,
    patches: list[dict[str, Any]],
    lists_patches: bool,
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    print_findings(console, checks)
    console.print("the plugin gives, chosen by")
    for row in adapters:
        mark = "[green]ok[/]" if row["state"] == "loaded" else f"[red]{row['state']}[/]"
        console.print(Text(f"  {row['gives']} "), mark, sep="")
        console.print(Text(f"      {row['chosen_by']}"), soft_wrap=True)
    console.print()
    num_symbols = len({patch["symbol"] for patch in patches})
    console.print(f"{len(patches)} patches of {num_symbols} attributes of verl; --patches lists them")
    if lists_patches:
        table = Table("symbol", "order", "kind", "adapter", "verl", box=box.SIMPLE_HEAD)
        for patch in patches:
            names = ("symbol", "order", "kind", "adapter", "versions")
            table.add_row(*(Text(str(patch[name]), overflow="fold") for name in names))
        console.print(table)
    console.print()
    console.print("[green]a quickstart would run here[/]" if is_well else "[red]a quickstart would not run here[/]")
