"""`verl-agentic evaluate`: evaluates a model behind an OpenAI-compatible server with the loop of training."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verl_agentic.cli.findings import print_tracebacks
from verl_agentic.cli.options.device_option import DeviceChoice, device_option, read_device
from verl_agentic.cli.options.typed_options import Options, declare, typed_command
from verl_agentic.evaluate.cli.cluster_options import ClusterOptions, work_of

if TYPE_CHECKING:
    from verl_agentic.base.env import EnvRow
    from verl_agentic.cpu.log_ratio import LogRatio
    from verl_agentic.episode.codec.codec import Codec
    from verl_agentic.episode.env_package import EnvPackage
    from verl_agentic.evaluate.evaluation_log import EpisodeRows
    from verl_agentic.evaluate.evaluation_run import RunAttempt
    from verl_agentic.evaluate.policies.completions import Endpoint, EndpointConfig
    from verl_agentic.evaluate.policies.tree_search import TreeSettings
    from verl_agentic.evaluate.policy_backends import BackendConfig, Mode
    from verl_agentic.evaluate.selection import Choose
    from verl_agentic.graders.models.client import Price

_MAX_RESPONSE_TOKENS, _MAX_CONTEXT_TOKENS = 8_192, 32_768
_VIEWER = "viewer.html"


class RowOptions(Options):
    """Options of the tasks and of the choice among their episodes."""

    GROUP = ("rows",)
    rows: Path | None = declare("use the rows of this file (default: make new rows)", metavar="FILE")
    split: Literal["train", "test"] = declare("make new rows of this split (default %(default)s)", "test")
    count: int = declare("make N new rows (default %(default)s)", 64, min=1, metavar="N")
    seed: int = declare("make new rows from this seed (default %(default)s)", 0, metavar="S")
    option: Sequence[str] = declare("pass an argument to make_rows", (), metavar="KEY=VALUE")
    samples: int = declare("run K episodes per row (default %(default)s)", 1, min=1, metavar="K")
    select: bool = declare("let the environment, or --phi, choose one of the K episodes of each row without its score, "
                          "such as by a majority vote", False)  # fmt: skip
    rank: str | None = declare("let a function (messages, final answer) -> value choose one of the K episodes: the one "
                              "with the highest log-prob plus value; as module:function or path.py:function",
                              metavar="ADDRESS")  # fmt: skip


class EpisodeOptions(Options):
    """Options of episodes."""

    GROUP = ("episodes",)
    config: Sequence[str] = declare("pass an argument to make_env", (), metavar="KEY=VALUE")
    judge: Path | None = declare("let judges score the episodes that the environment does not, by the options of the "
                                 "component judge in this YAML file", metavar="FILE")  # fmt: skip
    limit: Sequence[str] = declare("set a budget or deadline of an episode, such as max_turns=8", (),
                                  metavar="KEY=VALUE")  # fmt: skip
    turns: str | None = declare("evaluate with each of these max_turns and plot success over them", metavar="N,N,...")
    temperature: float | None = declare("sample at this temperature (default: the server's)", metavar="T")
    top_p: float | None = declare("sample with this top-p (default: the server's)", metavar="P")
    sampling_seed: int | None = declare("make sampling repeatable, if the server supports it", metavar="S")
    concurrency: int = declare("run C episodes at once (default %(default)s)", 32, min=1, metavar="C")
    best_of: int = declare("sample K turns in place of each, and take the one that --q or --phi values most", 1, min=1,
                          metavar="K")  # fmt: skip
    diversity: float = declare("subtract W times the similarity to turns of other attempts at the task (--best-of); "
                              "without a value from the log-prob", 0.0, metavar="W")  # fmt: skip
    tree: int | None = declare("let the --samples episodes of a row search a tree with K turns of each state that they "
                               "visit twice; --q values the turns", min=2, metavar="K")  # fmt: skip
    exploration: float | None = declare("use C times the exploration term of --tree (default 1)", min=0, metavar="C")
    q: str | None = declare("use this function (messages, text of a turn) -> value, as module:function or "
                           "path.py:function", metavar="ADDRESS")  # fmt: skip
    q_weight: float | None = declare("give --q the weight W in --tree, and the mean outcome 1 - W (default 0.5)", min=0,
                                     max=1, metavar="W")  # fmt: skip
    phi: Path | None = declare("take turns (--best-of) or episodes (--select) that this DPO or outcome model prefers "
                              "most to --reference", metavar="DIR")  # fmt: skip
    reference: Path | None = declare("name the model that --phi was trained from", metavar="DIR")
    device: DeviceChoice = device_option("run --phi and --reference")


class ServerOptions(Options):
    """Options of the server that samples turns."""

    GROUP = ("server",)
    mode: Literal["completions", "chat"] | None = declare("send tokens or messages (default: tokens if a --tokenizer "
                                                         "is given)")  # fmt: skip
    tokenizer: str | None = declare("load the model's tokenizer from this folder or hub name", metavar="PATH")
    protocol: str = declare("write turns in this protocol (default %(default)s)", "chat", metavar="NAME")
    tool_format: str = declare("parse tool calls with this parser of verl (default %(default)s)", "hermes",
                              metavar="NAME")  # fmt: skip
    api_key_env: str = declare("read the API key from this environment variable (default %(default)s)",
                              "OPENAI_API_KEY", metavar="NAME")  # fmt: skip
    request: Sequence[str] = declare("add a field to every request", (), metavar="KEY=VALUE")
    timeout: float = declare("wait S seconds for a response (default %(default)g)", 600.0, above=0, metavar="S")
    retries: int = declare("repeat a failed request N times (default %(default)s)", 6, min=0, metavar="N")


class EvaluateOptions(RowOptions, EpisodeOptions, ServerOptions, ClusterOptions):
    """Options of an evaluation."""

    COMMON = ("tokenizer", "samples", "count", "limit", "out")
    env: str = declare("use this environment: the name of a bundled one, a folder, or a module", is_required=True)
    endpoint: str = declare("ask this server, such as http://127.0.0.1:8000/v1", is_required=True, metavar="URL")
    model: str = declare("ask for the model of this name", is_required=True)
    prices: str | None = declare("compute the cost from the prices of a million prompt tokens and of a million sampled "
                                "tokens", metavar="IN,OUT")  # fmt: skip
    out: Path | None = declare("write to this folder (default: outputs/evaluate/ENV-MODEL)", metavar="DIR")
    json: bool = declare("print the summary as JSON instead of a table", False)


def run_evaluation(options: EvaluateOptions) -> int:
    """Runs missing episodes and prints the summary; returns 1 if all episodes are void."""
    import json

    from verl_agentic.base.errors import ConfigError

    if options.select and options.rank:
        raise ConfigError(f"--select and --rank both choose an episode, got --rank {options.rank}; leave one out")
    if options.turns:
        return _evaluate_turns(options, options.turns)
    summary = asyncio.run(evaluate_model(options))
    if options.json:
        print(json.dumps(summary))
    else:
        _print_summary(summary)
    return 0 if summary["episodes"] > summary["void"] else 1


def _evaluate_turns(options: EvaluateOptions, choice: str) -> int:
    """Evaluates each number of turns; returns 1 if all episodes of one of them are void."""
    import json

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.evaluate.evaluation_page import write_turns_page
    from verl_agentic.web.pages.charts import Series, line_file

    try:
        turns = sorted({int(number) for number in choice.split(",")})
    except ValueError:
        turns = [0]
    if turns[0] < 1:
        raise ConfigError(f"--turns must be numbers from 1 on, such as 1,2,4,8, got {choice!r}")
    folder, points = _choose_folder(options), []
    for number in turns:
        overrides = {"limit": [*options.limit, f"max_turns={number}"], "out": folder / f"turns-{number}"}
        summary = asyncio.run(evaluate_model(replace(options, **overrides)))
        if not options.json:
            _print_summary(summary)
        success = summary.get("success") or {"mean": None, "stderr": None}
        points.append({"step": number, **success, "episodes": summary["episodes"], "void": summary["void"]})
    means = [(point["step"], point["mean"]) for point in points if point["mean"] is not None]
    drawn = line_file([Series(label="success", points=means, colour="#0b6e4f")], x="max_turns", y="share of episodes")
    (folder / "turns.svg").write_text(drawn, encoding="utf-8")
    turn_points = [{"max_turns": point.pop("step"), **point} for point in points]
    (folder / "turns.json").write_text(json.dumps(turn_points, indent=2) + "\n", encoding="utf-8")
    write_turns_page(folder / "report.html", turn_points, title=f"{options.env} with {options.model}")
    print(
        json.dumps(turn_points)
        if options.json
        else f"success over max_turns: {folder}/report.html, turns.json, turns.svg"
    )
    return 0 if all(point["episodes"] > point["void"] for point in turn_points) else 1


async def evaluate_model(options: EvaluateOptions) -> dict[str, Any]:
    """Runs missing episodes, writes all files and returns the summary."""
    import json

    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.episode.circuit_breaker import CircuitBreaker
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.evaluation_log import EvaluationLog
    from verl_agentic.evaluate.evaluation_page import shown_tasks, write_evaluation_page
    from verl_agentic.evaluate.evaluation_run import attempts, evaluate, summarise
    from verl_agentic.evaluate.selection import select_episodes
    from verl_agentic.log.run_files import write_tokenizer

    package, price = load_env_package(options.env), _parse_price(options.prices)
    config = parse_key_values(options.config, option="--config")
    package.configured(config)  # fails before the first request
    _check_phi(options)
    choose = _make_chooser(options)
    out = _choose_folder(options)
    plan = attempts(_load_rows(options, package), options.samples)
    log = EvaluationLog(out, _collect_settings(options, config))
    try:
        make_work = functools.partial(_open_attempt_runner, options, config, _make_endpoint_config(options))
        if options.tokenizer:
            write_tokenizer(out, _make_codec(options)[0])  # for the viewer
        async with work_of(options, make_work, concurrency=options.concurrency) as run_attempt:
            with _show_progress(len(plan), is_quiet=options.json) as advance:
                episodes = await evaluate(
                    plan,
                    run_attempt=run_attempt,
                    log=log,
                    max_concurrent=options.concurrency,
                    breaker=CircuitBreaker(min_episodes=16),
                    on_episode=advance,
                )
    finally:
        log.close()
    rows = [episode[-1] for episode in episodes]
    summary = {
        "env": options.env,
        "model": options.model,
        "mode": _choose_mode(options),
        "out": str(out),
        **summarise(rows, price=price),
    }
    if options.traceback:
        print_tracebacks({row["error"]: row["traceback"] for row in rows}.values())
    if options.select or options.rank:
        make_env = package.configured(config)
        chosen = await select_episodes(
            plan, episodes, make_env=make_env, out=out, max_concurrent=options.concurrency, choose=choose
        )
        summary |= {"selected": chosen} if chosen else {}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    viewer = _export_viewer(out, [("val", 0, task) for task in shown_tasks(rows)])
    write_evaluation_page(out / "report.html", summary=summary, rows=rows, viewer=viewer)
    return summary


@contextlib.asynccontextmanager
async def _open_attempt_runner(
    options: EvaluateOptions, config: Mapping[str, Any], endpoint_config: EndpointConfig
) -> AsyncIterator[RunAttempt]:
    """Yields the function that runs an attempt in this process."""
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.evaluation_run import attempt_runner
    from verl_agentic.evaluate.judged_env import judged
    from verl_agentic.evaluate.policies.completions import Endpoint
    from verl_agentic.evaluate.policy_backends import connect
    from verl_agentic.graders.judge.options import JudgeOptions
    from verl_agentic.graders.models.client import connections

    make_env = load_env_package(options.env).configured(config)
    if options.judge is not None:
        make_env = judged(make_env, JudgeOptions.from_mapping(_read_judge(options.judge)))
    endpoint = Endpoint(endpoint_config, max_connections=options.concurrency)
    try:
        backend_for = await connect(_choose_mode(options), _make_backend_config(options, endpoint))
        async with contextlib.nullcontext() if options.judge is None else connections():
            yield attempt_runner(make_env, backend_for)
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


def _choose_mode(options: EvaluateOptions) -> Mode:
    from verl_agentic.base.errors import ConfigError

    if options.mode == "completions" and not options.tokenizer:
        raise ConfigError(
            "mode completions needs a tokenizer, got no --tokenizer; name the model's, or use --mode chat"
        )
    return options.mode or ("completions" if options.tokenizer else "chat")


def _choose_folder(options: EvaluateOptions) -> Path:
    name = re.sub(r"[^\w.-]+", "_", f"{Path(options.env).name}-{options.model}")
    return options.out or Path("outputs") / "evaluate" / name


def _load_rows(options: RowOptions, package: EnvPackage) -> list[EnvRow]:
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.data.prepare import make_rows
    from verl_agentic.log.files.rows import read_rows

    if options.rows is not None:
        return read_rows(options.rows)
    row_options = parse_key_values(options.option, option="--option")
    return make_rows(package, split=options.split, count=options.count, seed=options.seed, options=row_options)


def _collect_settings(options: EvaluateOptions, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that must stay the same when an evaluation is resumed."""
    names = ("env", "model", "limit", "temperature", "top_p", "sampling_seed", "tokenizer", "protocol", "tool_format")
    q = options.q or f"{options.phi} over {options.reference}"
    choice_settings = {"best_of": options.best_of, "q": q} if options.best_of > 1 else {}
    best_of = choice_settings | ({"diversity": options.diversity} if options.diversity else {})
    if (tree := _read_tree(options)) is not None:
        best_of |= {"tree": asdict(tree)}
    if options.judge is not None:
        best_of |= {"judge": _read_judge(options.judge)}
    named = {name: getattr(options, name) for name in names}
    return {**named, "mode": _choose_mode(options), "config": dict(config), "request": options.request, **best_of}


def _read_judge(path: Path) -> dict[str, Any]:
    """Returns the options of the judges in a file. Raises ConfigError if it cannot be read."""
    import yaml

    from verl_agentic.base.errors import ConfigError

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as cause:
        raise ConfigError(f"--judge must be a YAML file, got {str(path)!r}: {cause}") from cause
    if not isinstance(values, dict):
        raise ConfigError(f"--judge must be a mapping of options, got {type(values).__name__} in {str(path)!r}")
    return values


def _read_tree(options: EvaluateOptions) -> TreeSettings | None:
    """Returns the settings of a tree search, if there is one. Raises ConfigError if other options do not fit it."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.evaluate.policies.tree_search import TreeSettings

    weights = {"exploration": options.exploration, "weight": options.q_weight}
    chosen = {name: value for name, value in weights.items() if value is not None}
    if options.tree is None:
        if chosen:
            raise ConfigError(f"--exploration and --q-weight are for --tree, got {chosen} without it; leave them out")
        return None
    is_varied = options.sampling_seed is None and options.temperature != 0
    is_alone = options.best_of == 1 and not options.diversity and not options.ray
    if not is_varied or not is_alone or options.samples < 2 or _choose_mode(options) != "completions":
        raise ConfigError(
            "--tree takes --tokenizer, --samples of at least 2, a temperature above 0, and no --sampling-seed, "
            f"--best-of, --diversity or --ray, got --tokenizer {options.tokenizer}, --samples {options.samples}, "
            f"--temperature {options.temperature}, --best-of {options.best_of}; change it"
        )
    if options.q_weight is not None and not options.q:
        raise ConfigError(f"--q-weight weighs --q, got --q-weight {options.q_weight} without it; give --q")
    return TreeSettings(width=options.tree, q=options.q or "", **chosen)


def _make_endpoint_config(options: EvaluateOptions) -> EndpointConfig:
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.evaluate.policies.completions import EndpointConfig

    return EndpointConfig(
        url=options.endpoint,
        model=options.model,
        api_key=os.environ.get(options.api_key_env, ""),
        request_timeout_s=options.timeout,
        max_retries=options.retries,
        extra=parse_key_values(options.request, option="--request"),
    )


def _check_phi(options: EvaluateOptions) -> None:
    """Raises ConfigError if a model that values tokens lacks what it needs, or is not used."""
    from verl_agentic.base.errors import ConfigError

    is_used = options.select or options.best_of > 1
    if options.phi and (not options.reference or not is_used or options.q or _choose_mode(options) != "completions"):
        raise ConfigError(
            f"--phi takes --reference, --tokenizer, and --best-of or --select, and no --q, got --reference "
            f"{options.reference}, --tokenizer {options.tokenizer}, --best-of {options.best_of}, --q {options.q}; "
            "change them"
        )
    if options.device != "auto" and not options.phi:
        raise ConfigError(
            f"--device is for the models of --phi, got --device {options.device} without it; the server of --endpoint "
            "has its own device, leave --device out"
        )


def _make_chooser(options: EvaluateOptions) -> Choose | None:
    """Returns what chooses an episode of each task in place of the environment."""
    from verl_agentic.base.registry import load_address
    from verl_agentic.evaluate.selection import highest_log_prob, highest_phi

    if options.rank:
        return highest_log_prob(load_address(options.rank, what="value function"))
    phi = _load_phi(options) if options.select else None
    return None if phi is None else highest_phi(phi)


def _load_phi(options: EvaluateOptions) -> LogRatio | None:
    from verl_agentic.cpu.log_ratio import LogRatio

    if options.phi is None or options.reference is None:
        return None
    return LogRatio.from_pretrained(options.phi, options.reference, device=read_device(options.device))


def _make_backend_config(options: EvaluateOptions, endpoint: Endpoint) -> BackendConfig:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.base.settings import read_settings
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
    from verl_agentic.evaluate.policies.completions import Sampling
    from verl_agentic.evaluate.policy_backends import BackendConfig

    tokenizer, codec = _make_codec(options) if options.tokenizer else (None, None)
    if options.protocol != "chat" and _choose_mode(options) == "chat":
        raise ConfigError(f"mode chat leaves the protocol to the server, got --protocol {options.protocol}; use tokens")
    value, tree = None, _read_tree(options)
    if tree is None and (options.q or options.diversity or options.best_of != 1):
        from verl_agentic.base.registry import load_address

        is_varied = options.sampling_seed is None and options.temperature != 0
        has_value = bool(options.q or options.phi)
        if not (has_value or options.diversity > 0) or options.best_of < 2 or not is_varied or options.diversity < 0:
            raise ConfigError(
                "--best-of takes --q, --phi or --diversity, at least 2 turns, a temperature above 0 and no "
                f"--sampling-seed, got --best-of {options.best_of}, --q {options.q}, --diversity "
                f"{options.diversity}; change it"
            )
        if options.diversity and options.ray:
            raise ConfigError("--diversity compares the attempts of one process, got --ray; leave one out")
        value = load_address(options.q, what="Q function") if options.q else _load_phi(options)
    limits_by_name = parse_key_values(options.limit, option="--limit")
    limits = read_settings(
        EpisodeLimits,
        limits_by_name,
        section="limits",
        max_response_tokens=_MAX_RESPONSE_TOKENS,
        max_context_tokens=_MAX_CONTEXT_TOKENS,
    )
    sampling = Sampling(temperature=options.temperature, top_p=options.top_p, seed=options.sampling_seed)
    return BackendConfig(
        endpoint=endpoint,
        limits=limits,
        sampling=sampling,
        tokenizer=tokenizer,
        codec=codec,
        best_of=options.best_of,
        value=value,
        diversity=options.diversity,
        tree=tree,
        has_default_context="max_context_tokens" not in limits_by_name,
    )


@functools.lru_cache(maxsize=1)
def _load_codec(tokenizer: str, tool_format: str, protocol: str) -> tuple[Any, Codec]:
    from verl_agentic.verl.rollout.model_codec import load_codec

    return load_codec(tokenizer, tool_format=tool_format, protocol=protocol)


def _make_codec(options: EvaluateOptions) -> tuple[Any, Codec]:
    return _load_codec(options.tokenizer, options.tool_format, options.protocol)


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


add_arguments, run = typed_command(EvaluateOptions, run_evaluation)
