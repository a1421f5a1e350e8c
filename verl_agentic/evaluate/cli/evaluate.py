"""`verl-agentic evaluate`: evaluates a model behind an OpenAI-compatible server with the loop of training."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.findings import print_tracebacks
from verl_agentic.cli.options.device_option import add_device_option, read_device
from verl_agentic.cli.options.numbers import positive, whole
from verl_agentic.evaluate.cli.cluster_options import add_cluster_options, work_of

if TYPE_CHECKING:
    from verl_agentic.base.env import EnvRow
    from verl_agentic.cpu.inference.log_ratio import LogRatio
    from verl_agentic.episode.codec.codec import Codec
    from verl_agentic.episode.env_package import EnvPackage
    from verl_agentic.evaluate.evaluation_log import EpisodeRows
    from verl_agentic.evaluate.evaluation_run import RunAttempt
    from verl_agentic.evaluate.policies.completions import Endpoint, EndpointConfig
    from verl_agentic.evaluate.policy_backends import BackendConfig, Mode
    from verl_agentic.evaluate.selection import Choose
    from verl_agentic.graders.models.client import Price

_MAX_RESPONSE_TOKENS, _MAX_CONTEXT_TOKENS = 8_192, 32_768
_VIEWER = "viewer.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--env", required=True, help="use this environment: the name of a bundled one, a folder, or a module"
    )
    parser.add_argument(
        "--endpoint", required=True, metavar="URL", help="ask this server, such as http://127.0.0.1:8000/v1"
    )
    parser.add_argument("--model", required=True, help="ask for the model of this name")
    rows = parser.add_argument_group("rows")
    rows.add_argument("--rows", type=Path, metavar="FILE", help="use the rows of this file (default: make new rows)")
    rows.add_argument(
        "--split", choices=("train", "test"), default="test", help="make new rows of this split (default %(default)s)"
    )
    rows.add_argument("--count", type=whole(1), default=64, metavar="N", help="make N new rows (default %(default)s)")
    rows.add_argument(
        "--seed", type=int, default=0, metavar="S", help="make new rows from this seed (default %(default)s)"
    )
    rows.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="pass an argument to make_rows"
    )
    rows.add_argument(
        "--samples", type=whole(1), default=1, metavar="K", help="run K episodes per row (default %(default)s)"
    )
    rows.add_argument("--select", action="store_true", help="let the environment, or --phi, choose one of the K "
                      "episodes of each row without its score, such as by a majority vote")  # fmt: skip
    rows.add_argument("--rank", metavar="ADDRESS", help="let a function (messages, final answer) -> value choose one "
                      "of the K episodes: the one with the highest log-prob plus value; as module:function or "
                      "path.py:function")  # fmt: skip
    play = parser.add_argument_group("episodes")
    play.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="pass an argument to make_env")
    play.add_argument("--limit", action="append", default=[], metavar="KEY=VALUE", help="set a budget or "
                      "deadline of an episode, such as max_turns=8")  # fmt: skip
    play.add_argument("--turns", metavar="N,N,...", help="evaluate with each of these max_turns and plot "
                      "success over them")  # fmt: skip
    play.add_argument(
        "--temperature", type=float, metavar="T", help="sample at this temperature (default: the server's)"
    )
    play.add_argument("--top-p", type=float, metavar="P", help="sample with this top-p (default: the server's)")
    play.add_argument(
        "--sampling-seed", type=int, metavar="S", help="make sampling repeatable, if the server supports it"
    )
    play.add_argument(
        "--concurrency", type=whole(1), default=32, metavar="C", help="run C episodes at once (default %(default)s)"
    )
    _add_best_of_arguments(play)
    _add_server_arguments(parser)
    add_cluster_options(parser)
    parser.add_argument("--prices", metavar="IN,OUT", help="compute the cost from the prices of a million prompt "
                        "tokens and of a million sampled tokens")  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write to this folder (default: outputs/evaluate/ENV-MODEL)"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead of a table")


def _add_best_of_arguments(play: argparse._ArgumentGroup) -> None:
    play.add_argument("--best-of", type=whole(1), default=1, metavar="K", help="sample K turns in place of each, and "
                      "take the one that --q or --phi values most")  # fmt: skip
    play.add_argument("--diversity", type=float, default=0.0, metavar="W", help="subtract W times the similarity to "
                      "turns of other attempts at the task (--best-of); without a value from the log-prob")  # fmt: skip
    play.add_argument("--q", metavar="ADDRESS", help="use this function (messages, text of a turn) -> value, as "
                      "module:function or path.py:function")  # fmt: skip
    play.add_argument("--phi", type=Path, metavar="DIR", help="take turns (--best-of) or episodes (--select) that "
                      "this DPO or outcome model prefers most to --reference")  # fmt: skip
    play.add_argument("--reference", type=Path, metavar="DIR", help="name the model that --phi was trained from")
    add_device_option(play, work="run --phi and --reference")


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    server = parser.add_argument_group("server")
    server.add_argument("--mode", choices=("completions", "chat"), help="send tokens or messages (default: tokens if a "
                        "--tokenizer is given)")  # fmt: skip
    server.add_argument("--tokenizer", metavar="PATH", help="load the model's tokenizer from this folder or hub name")
    server.add_argument("--protocol", default="chat", metavar="NAME", help="write turns in this protocol (default "
                        "%(default)s)")  # fmt: skip
    server.add_argument("--tool-format", default="hermes", metavar="NAME", help="parse tool calls with this parser "
                        "of verl (default %(default)s)")  # fmt: skip
    server.add_argument("--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="read the API key from "
                        "this environment variable (default %(default)s)")  # fmt: skip
    server.add_argument(
        "--request", action="append", default=[], metavar="KEY=VALUE", help="add a field to every request"
    )
    server.add_argument(
        "--timeout",
        type=positive,
        default=600.0,
        metavar="S",
        help="wait S seconds for a response (default %(default)g)",
    )
    server.add_argument(
        "--retries", type=whole(0), default=6, metavar="N", help="repeat a failed request N times (default %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs missing episodes and prints the summary; returns 1 if all episodes are void."""
    import json

    from verl_agentic.base.errors import ConfigError

    if args.select and args.rank:
        raise ConfigError(f"--select and --rank both choose an episode, got --rank {args.rank}; leave one out")
    if args.turns:
        return _evaluate_turns(args)
    summary = asyncio.run(evaluate_model(args))
    if args.json:
        print(json.dumps(summary))
    else:
        _print_summary(summary)
    return 0 if summary["episodes"] > summary["void"] else 1


def _evaluate_turns(args: argparse.Namespace) -> int:
    """Evaluates each number of turns; returns 1 if all episodes of one of them are void."""
    import json

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.base.web.pages.charts import Series, line_file
    from verl_agentic.evaluate.evaluation_page import write_turns_page

    try:
        turns = sorted({int(number) for number in args.turns.split(",")})
    except ValueError:
        turns = [0]
    if turns[0] < 1:
        raise ConfigError(f"--turns must be numbers from 1 on, such as 1,2,4,8, got {args.turns!r}")
    folder, points = _choose_folder(args), []
    for number in turns:
        overrides = {"limit": [*args.limit, f"max_turns={number}"], "out": folder / f"turns-{number}"}
        summary = asyncio.run(evaluate_model(argparse.Namespace(**{**vars(args), **overrides})))
        if not args.json:
            _print_summary(summary)
        success = summary.get("success") or {"mean": None, "stderr": None}
        points.append({"step": number, **success, "episodes": summary["episodes"], "void": summary["void"]})
    means = [(point["step"], point["mean"]) for point in points if point["mean"] is not None]
    drawn = line_file([Series(label="success", points=means, colour="#0b6e4f")], x="max_turns", y="share of episodes")
    (folder / "turns.svg").write_text(drawn, encoding="utf-8")
    turn_points = [{"max_turns": point.pop("step"), **point} for point in points]
    (folder / "turns.json").write_text(json.dumps(turn_points, indent=2) + "\n", encoding="utf-8")
    write_turns_page(folder / "report.html", turn_points, title=f"{args.env} with {args.model}")
    print(
        json.dumps(turn_points) if args.json else f"success over max_turns: {folder}/report.html, turns.json, turns.svg"
    )
    return 0 if all(point["episodes"] > point["void"] for point in turn_points) else 1


async def evaluate_model(args: argparse.Namespace) -> dict[str, Any]:
    """Runs missing episodes, writes all files and returns the summary."""
    import json

    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.episode.attempt.circuit_breaker import CircuitBreaker
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.evaluation_log import EvaluationLog
    from verl_agentic.evaluate.evaluation_page import shown_tasks, write_evaluation_page
    from verl_agentic.evaluate.evaluation_run import attempts, evaluate, summarise
    from verl_agentic.evaluate.selection import select_episodes
    from verl_agentic.log.run_files import write_tokenizer

    package, price = load_env_package(args.env), _parse_price(args.prices)
    config = parse_key_values(args.config, option="--config")
    package.configured(config)  # fails before the first request
    _check_phi(args)
    choose = _make_chooser(args)
    out = _choose_folder(args)
    plan = attempts(_load_rows(args, package), args.samples)
    log = EvaluationLog(out, _collect_settings(args, config))
    try:
        make_work = functools.partial(_open_attempt_runner, args, config, _make_endpoint_config(args))
        if args.tokenizer:
            write_tokenizer(out, _make_codec(args)[0])  # for the viewer
        async with work_of(args, make_work, concurrency=args.concurrency) as run_attempt:
            with _show_progress(len(plan), is_quiet=args.json) as advance:
                episodes = await evaluate(
                    plan,
                    run_attempt=run_attempt,
                    log=log,
                    max_concurrent=args.concurrency,
                    breaker=CircuitBreaker(min_episodes=16),
                    on_episode=advance,
                )
    finally:
        log.close()
    rows = [episode[-1] for episode in episodes]
    summary = {
        "env": args.env,
        "model": args.model,
        "mode": _choose_mode(args),
        "out": str(out),
        **summarise(rows, price=price),
    }
    if args.traceback:
        print_tracebacks({row["error"]: row["traceback"] for row in rows}.values())
    if args.select or args.rank:
        make_env = package.configured(config)
        chosen = await select_episodes(
            plan, episodes, make_env=make_env, out=out, max_concurrent=args.concurrency, choose=choose
        )
        summary |= {"selected": chosen} if chosen else {}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    viewer = _export_viewer(out, [("val", 0, task) for task in shown_tasks(rows)])
    write_evaluation_page(out / "report.html", summary=summary, rows=rows, viewer=viewer)
    return summary


@contextlib.asynccontextmanager
async def _open_attempt_runner(
    args: argparse.Namespace, config: Mapping[str, Any], endpoint_config: EndpointConfig
) -> AsyncIterator[RunAttempt]:
    """Yields the function that runs an attempt in this process."""
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.evaluation_run import attempt_runner
    from verl_agentic.evaluate.policies.completions import Endpoint
    from verl_agentic.evaluate.policy_backends import connect

    endpoint = Endpoint(endpoint_config, max_connections=args.concurrency)
    try:
        backend_for = await connect(_choose_mode(args), _make_backend_config(args, endpoint))
        yield attempt_runner(load_env_package(args.env).configured(config), backend_for)
    finally:
        await endpoint.close()


def _export_viewer(out: Path, groups: Sequence[tuple[str, int, str]]) -> str:
    """Writes the viewer with some groups beside the report; returns its name, or nothing if that fails."""
    from verl_agentic.base.errors import DataError
    from verl_agentic.observe.viewer.export import newest_rows, write_page
    from verl_agentic.observe.viewer.query import Query
    from verl_agentic.observe.viewer.run_view import RunView

    try:
        view = RunView(out)
        rows = newest_rows(view, limit=sys.maxsize, query=Query(), keys=groups)
    except DataError as error:
        print(f"no viewer beside the report: {error}", file=sys.stderr)
        return ""
    write_page(out / _VIEWER, view, {row: [] for row in rows})
    return _VIEWER


def _parse_price(text: str | None) -> Price | None:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.graders.models.client import Price

    if text is None:
        return None
    try:
        prompt, sampled = map(float, text.split(","))
    except ValueError:
        prompt = sampled = -1.0
    if not (0 <= prompt < math.inf and 0 <= sampled < math.inf):
        raise ConfigError(f"--prices must be two numbers from 0 on, such as 0.5,1.5, got {text!r}")
    return Price(input=prompt, output=sampled)


def _choose_mode(args: argparse.Namespace) -> Mode:
    from verl_agentic.base.errors import ConfigError

    if args.mode == "completions" and not args.tokenizer:
        raise ConfigError(
            "mode completions needs a tokenizer, got no --tokenizer; name the model's, or use --mode chat"
        )
    return args.mode or ("completions" if args.tokenizer else "chat")


def _choose_folder(args: argparse.Namespace) -> Path:
    name = re.sub(r"[^\w.-]+", "_", f"{Path(args.env).name}-{args.model}")
    return args.out or Path("outputs") / "evaluate" / name


def _load_rows(args: argparse.Namespace, package: EnvPackage) -> list[EnvRow]:
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.data.prepare import make_rows
    from verl_agentic.log.files.rows import read_rows

    if args.rows is not None:
        return read_rows(args.rows)
    options = parse_key_values(args.option, option="--option")
    return make_rows(package, split=args.split, count=args.count, seed=args.seed, options=options)


def _collect_settings(args: argparse.Namespace, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that must stay the same when an evaluation is resumed."""
    names = ("env", "model", "limit", "temperature", "top_p", "sampling_seed", "tokenizer", "protocol", "tool_format")
    q = args.q or f"{args.phi} over {args.reference}"
    choice_settings = {"best_of": args.best_of, "q": q} if args.best_of > 1 else {}
    best_of = choice_settings | ({"diversity": args.diversity} if args.diversity else {})
    named = {name: getattr(args, name) for name in names}
    return {**named, "mode": _choose_mode(args), "config": dict(config), "request": args.request, **best_of}


def _make_endpoint_config(args: argparse.Namespace) -> EndpointConfig:
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.evaluate.policies.completions import EndpointConfig

    return EndpointConfig(
        url=args.endpoint,
        model=args.model,
        api_key=os.environ.get(args.api_key_env, ""),
        request_timeout_s=args.timeout,
        max_retries=args.retries,
        extra=parse_key_values(args.request, option="--request"),
    )


def _check_phi(args: argparse.Namespace) -> None:
    """Raises ConfigError if a model that values tokens lacks what it needs, or is not used."""
    from verl_agentic.base.errors import ConfigError

    is_used = args.select or args.best_of > 1
    if args.phi and (not args.reference or not is_used or args.q or _choose_mode(args) != "completions"):
        raise ConfigError(
            f"--phi takes --reference, --tokenizer, and --best-of or --select, and no --q, got --reference "
            f"{args.reference}, --tokenizer {args.tokenizer}, --best-of {args.best_of}, --q {args.q}; change them"
        )
    if args.device != "auto" and not args.phi:
        raise ConfigError(
            f"--device is for the models of --phi, got --device {args.device} without it; the server of --endpoint has "
            "its own device, leave --device out"
        )


def _make_chooser(args: argparse.Namespace) -> Choose | None:
    """Returns what chooses an episode of each task in place of the environment."""
    from verl_agentic.base.registry import load_address
    from verl_agentic.evaluate.selection import highest_log_prob, highest_phi

    if args.rank:
        return highest_log_prob(load_address(args.rank, what="value function"))
    return highest_phi(_load_phi(args)) if args.phi and args.select else None


def _load_phi(args: argparse.Namespace) -> LogRatio:
    from verl_agentic.cpu.inference.log_ratio import LogRatio

    return LogRatio.from_pretrained(args.phi, args.reference, device=read_device(args))


def _make_backend_config(args: argparse.Namespace, endpoint: Endpoint) -> BackendConfig:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.base.settings import read_settings
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.episode.limits import EpisodeLimits
    from verl_agentic.evaluate.policies.completions import Sampling
    from verl_agentic.evaluate.policy_backends import BackendConfig

    tokenizer, codec = _make_codec(args) if args.tokenizer else (None, None)
    if args.protocol != "chat" and _choose_mode(args) == "chat":
        raise ConfigError(f"mode chat leaves the protocol to the server, got --protocol {args.protocol}; use tokens")
    value = None
    if args.q or args.diversity or args.best_of != 1:
        from verl_agentic.base.registry import load_address

        is_varied = args.sampling_seed is None and args.temperature != 0
        has_value = bool(args.q or args.phi)
        if not (has_value or args.diversity > 0) or args.best_of < 2 or not is_varied or args.diversity < 0:
            raise ConfigError(
                "--best-of takes --q, --phi or --diversity, at least 2 turns, a temperature above 0 and no "
                f"--sampling-seed, got --best-of {args.best_of}, --q {args.q}, --diversity {args.diversity}; change it"
            )
        if args.diversity and args.ray:
            raise ConfigError("--diversity compares the attempts of one process, got --ray; leave one out")
        value = _load_phi(args) if args.phi else load_address(args.q, what="Q function") if args.q else None
    limits_by_name = parse_key_values(args.limit, option="--limit")
    limits = read_settings(
        EpisodeLimits,
        limits_by_name,
        section="limits",
        max_response_tokens=_MAX_RESPONSE_TOKENS,
        max_context_tokens=_MAX_CONTEXT_TOKENS,
    )
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, seed=args.sampling_seed)
    return BackendConfig(
        endpoint=endpoint,
        limits=limits,
        sampling=sampling,
        tokenizer=tokenizer,
        codec=codec,
        best_of=args.best_of,
        value=value,
        diversity=args.diversity,
        has_default_context="max_context_tokens" not in limits_by_name,
    )


@functools.lru_cache(maxsize=1)
def _load_codec(tokenizer: str, tool_format: str, protocol: str) -> tuple[Any, Codec]:
    from verl_agentic.verl.rollout.model_codec import load_codec

    return load_codec(tokenizer, tool_format=tool_format, protocol=protocol)


def _make_codec(args: argparse.Namespace) -> tuple[Any, Codec]:
    return _load_codec(args.tokenizer, args.tool_format, args.protocol)


@contextlib.contextmanager
def _show_progress(total: int, *, is_quiet: bool) -> Iterator[Callable[[EpisodeRows], None]]:
    """Shows the number of finished episodes and their mean outcome."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    outcomes: list[float] = []
    with Progress(*columns, console=Console(stderr=True), disable=is_quiet) as progress:
        task = progress.add_task("", total=total)

        def advance(rows: EpisodeRows) -> None:
            if not rows[-1]["is_void"]:
                outcomes.append(rows[-1]["acc"])
            description = f"outcome {sum(outcomes) / len(outcomes):.3f}" if outcomes else "all void"
            progress.update(task, advance=1, description=description)

        yield advance


def _print_summary(summary: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from verl_agentic.evaluate.evaluation_page import figure_rows

    console = Console()
    table = Table(title=f"{summary['env']} with {summary['model']} ({summary['mode']})", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("uncertainty", justify="right")
    for row in figure_rows(summary):
        table.add_row(*row)
    console.print(table)
    for error, count in summary["void_errors"].items():
        console.print(Text(f"{count} void: {error}", style="red"))
    ids = "/".join(summary["token_ids"])
    console.print(Text(f"{summary['out']}/report.html, trajectories, summary.json; token ids are {ids}", style="dim"))
    console.print(Text(f"look at the episodes: verl-agentic view {summary['out']}", style="dim"), soft_wrap=True)
