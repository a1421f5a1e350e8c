"""`verl-agentic model probe`: tests whether models are a good start for RL in an environment."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.options.device_option import DeviceChoice, device_option, read_device
from verl_agentic.cli.options.typed_options import Options, RareHelp, add_options, declare, read_options

if TYPE_CHECKING:
    from verl_agentic.base.finding import Finding

_TOKEN_VARIABLE = "VERL_AGENTIC_API_KEY"
_LIMITS = {
    "min_pass_at_k": "require this share of tasks solved in K attempts",
    "min_mixed": "require this share of tasks with solved and failed attempts",
    "min_valid_calls": "require this share of valid tool calls",
    "min_entropy": "require this many nats per token",
}


class ProbeOptions(Options):
    """Options of a probe."""

    COMMON = ("rows", "samples", "endpoint", "limit", "out")
    models: Sequence[str] = declare("test this Hugging Face folder, served here; with --endpoint, the model of "
                                    "this name", is_required=True, is_positional=True, nargs="+",
                                    metavar="MODEL")  # fmt: skip
    env: str = declare("use this environment: the name of a bundled one, a folder, or a module", is_required=True)
    rows: int = declare("make N rows of the training split (default %(default)s)", 64, min=1, metavar="N")
    samples: int = declare("run K episodes per row (default %(default)s)", 8, min=1, metavar="K")
    seed: int = declare("make rows from this seed (default %(default)s)", 0, metavar="S")
    option: Sequence[str] = declare("pass an argument to make_rows", (), metavar="KEY=VALUE")
    config: Sequence[str] = declare("pass an argument to make_env", (), metavar="KEY=VALUE")
    limit: Sequence[str] = declare("set a budget of an episode, such as max_turns=8", (), metavar="KEY=VALUE")
    endpoint: str | None = declare("ask this server, such as http://127.0.0.1:8000/v1; MODEL then also names the "
                                   "tokenizer", metavar="URL")  # fmt: skip
    protocol: str = declare("write turns in this protocol (default %(default)s)", "chat", metavar="NAME")
    tool_format: str = declare("parse tool calls with this parser of verl (default %(default)s)", "hermes",
                               metavar="NAME")  # fmt: skip
    device: DeviceChoice = device_option("serve the model")
    out: Path = declare("write the episodes of each model below this folder (default %(default)s)",
                        Path("outputs/probe"), metavar="DIR")  # fmt: skip
    json: bool = declare("print the figures as JSON instead of a table", False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    from verl_agentic.evaluate.model_probe import ProbeLimits

    add_options(parser, ProbeOptions)
    group, default = parser.add_argument_group("limits of the verdict"), ProbeLimits()
    for name, description in _LIMITS.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(default, name), metavar="X",
                           help=RareHelp(f"{description} (default %(default)s)"))  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Probes the models one after the other and prints them side by side; returns 1 if a check of one fails."""
    import json

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.evaluate.model_probe import ProbeLimits, probe_findings

    options = read_options(ProbeOptions, args)
    if options.rows < 1 or options.samples < 2:
        raise ConfigError(
            f"a probe takes rows and at least 2 --samples, got {options.rows} and {options.samples}; raise them"
        )
    if options.endpoint and options.device != "auto":
        raise ConfigError(
            f"--device is for models that are served here, got --device {options.device} with --endpoint; leave one out"
        )
    limits = ProbeLimits(**{name: getattr(args, name) for name in _LIMITS})
    figures = {model: _probe_model(options, model) for model in dict.fromkeys(options.models)}
    findings = {model: probe_findings(model_figures, limits) for model, model_figures in figures.items()}
    verdicts = {
        model: all(finding.status != "fail" for finding in model_findings) for model, model_findings in findings.items()
    }
    if options.json:
        print(json.dumps({model: {"good_start": verdicts[model], **figures[model],
                                  "failed": [finding.check for finding in findings[model] if finding.status == "fail"]}
                          for model in figures}))  # fmt: skip
    else:
        _print_figures(options, figures, findings)
    return 0 if all(verdicts.values()) else 1


def _probe_model(options: ProbeOptions, model: str) -> dict[str, Any]:
    """Returns the figures of one model."""
    from verl_agentic.evaluate.cli import evaluate
    from verl_agentic.evaluate.evaluation_log import read_episodes
    from verl_agentic.evaluate.model_probe import probe_figures

    out = options.out / re.sub(r"[^\w.-]+", "_", model.strip("/"))
    with contextlib.nullcontext(options.endpoint) if options.endpoint else _serve_model(model, options) as url:
        evaluation = evaluate.EvaluateOptions(
            env=options.env, endpoint=url, model=model, tokenizer=model, split="train", count=options.rows,
            seed=options.seed, samples=options.samples, temperature=1.0, protocol=options.protocol,
            tool_format=options.tool_format, option=options.option, config=options.config, limit=options.limit,
            out=out, json=options.json, traceback=options.traceback,
            api_key_env=evaluate.EvaluateOptions.api_key_env if options.endpoint else _TOKEN_VARIABLE,
        )  # fmt: skip
        summary = asyncio.run(evaluate.evaluate_model(evaluation))
    return {**probe_figures(list(read_episodes(out).values()), summary), "out": str(out)}


@contextlib.contextmanager
def _serve_model(model: str, options: ProbeOptions) -> Iterator[str]:
    """Serves a model folder on a free port of this machine, in a thread with an event loop of its own."""
    import socket
    import threading

    from verl_agentic.base.errors import DataError
    from verl_agentic.cpu.cli.serve import load_served
    from verl_agentic.cpu.serving.http_server import make_app
    from verl_agentic.web.listening.guarded_server import GuardedServer
    from verl_agentic.web.listening.listening_socket import open_socket, url_of

    if not (Path(model) / "config.json").is_file():
        raise DataError(f"no such model folder, got {model}; name a Hugging Face folder, or give --endpoint")
    token = os.environ.setdefault(_TOKEN_VARIABLE, secrets.token_urlsafe(24))
    served = load_served(
        Path(model), name=model, tool_format=options.tool_format, max_running=256, threads=None, token=token,
        device=read_device(options.device),
    )  # fmt: skip
    http = GuardedServer(make_app(served))

    async def serve(listening: socket.socket) -> None:
        try:
            await http.serve([listening])
        finally:
            await served.engine.close()

    with open_socket("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(serve(listening)), name="served-model", daemon=True)
        thread.start()
        try:
            yield f"{url_of(listening)}/v1"
        finally:
            http.should_exit = True
            thread.join()


def _print_figures(
    options: ProbeOptions, figures: Mapping[str, Mapping[str, Any]], findings: Mapping[str, Sequence[Finding]]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from verl_agentic.cli.findings import print_findings

    console = Console()
    table = Table("figure", title=f"start for RL in {options.env}", title_justify="left")
    for model in figures:
        table.add_column(Text(model), overflow="fold")
    for name in ("pass@1", "pass@k", "mixed", "valid_calls", "entropy"):
        table.add_row(
            name.replace("_", " "), *(_format_figure(model_figures[name]) for model_figures in figures.values())
        )
    console.print(table)
    for model, model_findings in findings.items():
        is_good = all(finding.status != "fail" for finding in model_findings)
        console.print(Text(f"{model}: {'a good start' if is_good else 'not a good start'}",
                           style="green" if is_good else "red"))  # fmt: skip
        print_findings(console, model_findings)


def _format_figure(value: Any) -> str:
    if value is None:
        return "unknown"
    if not isinstance(value, Mapping):
        return f"{value:.3g}"
    if "ci95" in value:
        return f"{value['mean']:.3g} ({value['ci95'][0]:.2g} to {value['ci95'][1]:.2g})"
    return f"{value['mean']:.3g}" + ("" if value["stderr"] is None else f" ± {value['stderr']:.2g}")
