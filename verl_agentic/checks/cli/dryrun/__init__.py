"""`verl-agentic dryrun`: one whole step of `main_ppo` with the user's own configuration, on a CPU."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from verl_agentic.cli.options.option_values import positive

_TIMEOUT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--config-dir", type=Path, default=None, help="read the config from this folder (default: verl's own)"
    )
    parser.add_argument("--config-name", help="read the config of this name (default: verl's ppo_trainer)")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="override keys of the config, as for main_ppo"
    )
    parser.add_argument(
        "--model", default="tiny", help="run this model folder, or tiny: random weights with the model's tokenizer"
    )
    parser.add_argument(
        "--policy",
        choices=("scripted", "sampled"),
        default=None,
        help="let the environment's solution write some sessions (scripted, the default if there is a solution), or "
        "sample all of them",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/dryrun"), help="write to this folder (default %(default)s)"
    )
    parser.add_argument(
        "--timeout", type=positive, default=_TIMEOUT_S, help="stop after this many seconds (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Runs one step and prints its report; the exit code is 0 if every stage passes."""
    from rich.console import Console

    from verl_agentic.checks.cli.dryrun.launch import launch
    from verl_agentic.checks.cli.dryrun.plan import DryrunOptions, make_plan
    from verl_agentic.checks.cli.dryrun.show import as_json, show_plan, show_report, write_page
    from verl_agentic.checks.dryrun.events import Events
    from verl_agentic.cpu.quickstart.child_process import termination_as_interrupt

    started, out = time.monotonic(), args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=args.json)
    plan = make_plan(
        DryrunOptions(
            config_dir=args.config_dir,
            config_name=args.config_name,
            overrides=args.overrides,
            model=args.model,
            policy=args.policy,
            out=out,
        )
    )
    show_plan(console, plan)
    with console.status("starting verl ...") as status:

        def on_events(events: Events) -> None:
            begun = events.of("begin")
            if begun:
                status.update(f"{begun[-1]['stage']} ...")

        with termination_as_interrupt():
            report = launch(plan, out, timeout_s=args.timeout, on_events=on_events)
    seconds = time.monotonic() - started
    log = str(out / "main_ppo.log")
    show_report(console, report, log=log)
    write_page(out / "report.html", plan, report, seconds=seconds, log=log)
    console.print(f"{seconds:.0f} s; report.html, configuration, log and events are in {out}", soft_wrap=True)
    if args.json:
        print(json.dumps(as_json(plan, report, seconds=seconds, out=str(out)), indent=2, default=str))
    return 0 if report.is_right else 1
