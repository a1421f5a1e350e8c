"""Checks of rows that would otherwise fail in the middle of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import AgenticError, DataError, EnvError, boundary
from verl_agentic.base.text.grouped_lines import group_lines
from verl_agentic.data.truth_checks import unmet_truth
from verl_agentic.log.files.parquet import BY_ENVIRONMENT, extra_of, ground_truth_of
from verl_agentic.log.files.plain_values import null_paths, to_plain, value_paths
from verl_agentic.log.files.rows import row_of_columns
from verl_agentic.rewards.component import ComponentType

ToolNames = Callable[[EnvRow], Awaitable[set[str]]]
_MOST_SHOWN = 10


async def check_records(
    records: Sequence[Mapping[str, Any]],
    *,
    tools_of: ToolNames,
    check_row: Callable[[EnvRow], None] | None = None,
    components: Sequence[ComponentType] = (),
    location: str = "",
) -> None:
    """Checks that rows can be trained on.

    Args:
        records: rows as columns, as verl reads them.
        tools_of: row -> the names of the tools of its environment.
        check_row: the environment's check of a row (`EnvPackage.check_row`).
        components: those that will score the rows; their ground truths must be ones that an answer can meet.
        location: prefix of the row's number in messages, such as the name of a file.

    Raises:
        DataError: a row is invalid; the message names rows and fields.
    """
    rows_by_index: dict[Any, int] = {}
    problems = [("", problem) for problem in null_arguments(location, records)]
    is_named = any(record.get("agent_name") is not None for record in records)  # else the run's default agent loop
    for number, record in enumerate(records):
        row_problems = [
            *_problems_of(record, is_named=is_named),
            *_index_problems(record, number, rows_by_index),
        ]
        row_problems = row_problems or list(unmet_truth(record, components))
        if not row_problems:
            row_problems = _start_problems(record, check_row) or await _tool_problems(record, tools_of)
        problems += [(f"{location}row {number}", problem) for problem in row_problems]
    if not records:
        problems.append(("", f"{location or 'the file '}has no rows"))
    if problems:
        lines = group_lines(problems, separator=", ")
        more = f"\n... and {len(lines) - _MOST_SHOWN} more" if len(lines) > _MOST_SHOWN else ""
        listed = "\n".join(lines[:_MOST_SHOWN])
        raise DataError(f"these rows would fail in training, got {len(problems)} problems; fix them:\n{listed}{more}")


def null_arguments(location: str, records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the rows whose prompts have calls with null arguments that other calls use: Arrow fills them in.

    Args:
        location: prefix of the row's number.
        records: rows as columns.
    """
    nulls: list[tuple[int, str, list[str]]] = []
    used: set[str] = set()
    for number, record in enumerate(records):
        for name, arguments in _iter_calls(record):
            paths = list(null_paths(arguments))
            nulls += [(number, name, paths)] if paths else []
            used.update(value_paths(arguments))
    return [
        f"{location}row {number}, prompt: the call of {name} has null for {filled}, which other calls use; Arrow fills "
        "in arguments of other calls: write arguments as JSON text, as `verl-agentic prepare` does"
        for number, name, paths in nulls
        if (filled := sorted(used.intersection(paths)))
    ]


def foreign_truth(record: Mapping[str, Any]) -> str:
    """Returns why the ground truth of a row of parquet, such as a date, is no value of JSON; empty if it is one."""
    model = record.get("reward_model")
    try:
        to_plain(model.get("ground_truth") if isinstance(model, Mapping) else None, "reward_model.ground_truth")
    except DataError as error:
        return str(error)
    return ""


def _problems_of(record: Mapping[str, Any], *, is_named: bool) -> Iterator[str]:
    """Yields the faults of a row; `is_named`: of a file whose rows name their agent loops."""
    yield from _prompt_problems(record.get("prompt"))
    for name in ("data_source", "agent_name") if is_named else ("data_source",):
        value = record.get(name)
        if not isinstance(value, str) or not value:
            yield f"{name}: must be a text, got {value!r}"
    yield from _truth_problems(record.get("reward_model"))
    extra_info = record.get("extra_info")
    if not isinstance(extra_info, Mapping):
        yield f"extra_info: must be an object, got {extra_info!r}"
        return
    try:
        extra_of(extra_info)
    except DataError as error:
        yield str(error).removeprefix("row: ")
    objects = {f"extra_info.{key}": value for key, value in extra_info.items()}
    if isinstance(model := record.get("reward_model"), Mapping):
        objects["reward_model.ground_truth"] = model.get("ground_truth")
    for name, value in objects.items():
        for field in null_paths(value, name):
            yield f"{field}: is None; Arrow fills in keys of other rows: write the file with `verl-agentic prepare`"


def _prompt_problems(prompt: Any) -> Iterator[str]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str) or len(prompt) == 0:
        yield f"prompt: must be a list of messages, got {prompt!r}"
        return
    try:
        row_of_columns({"prompt": list(prompt), "reward_model": {}}, "prompt")
    except DataError as error:
        yield str(error)
        return
    if not any((message.get("content") or "").strip() for message in prompt):
        yield "prompt: has no text, got only empty messages"
    if prompt[-1].get("role") == "assistant":
        yield "prompt: ends with a message of the assistant; the policy's turn comes after one of user or tool"


def _truth_problems(reward_model: Any) -> Iterator[str]:
    if not isinstance(reward_model, Mapping):
        yield f"reward_model: must be an object, got {reward_model!r}"
        return
    try:
        truth = to_plain(ground_truth_of(reward_model), "reward_model.ground_truth")
    except DataError as error:
        yield str(error).removeprefix("row: ")
        return
    is_optional = truth is None and reward_model.get("style") == BY_ENVIRONMENT
    if not is_optional and (truth is None or truth == ""):
        yield (
            f"reward_model.ground_truth: is missing, got {truth!r}; rows that the environment scores without one have "
            f"reward_model.style={BY_ENVIRONMENT}"
        )


def _index_problems(record: Mapping[str, Any], number: int, rows_by_index: dict[Any, int]) -> Iterator[str]:
    extra_info = record.get("extra_info")
    if not isinstance(extra_info, Mapping):
        return
    index = extra_info.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        yield f"extra_info.index: must be a number, got {index!r}"
    elif index in rows_by_index:
        yield f"extra_info.index: row {rows_by_index[index]} has {index}, too"
    else:
        rows_by_index[index] = number


def _start_problems(record: Mapping[str, Any], check_row: Callable[[EnvRow], None] | None) -> list[str]:
    """Returns the environment's complaint about a row."""
    try:
        if check_row is not None:
            with boundary(EnvError, "its check of the row"):
                check_row(row_of_columns(record, "row"))
    except AgenticError as error:
        return [f"extra_info: the environment does not start, got {error}"]
    return []


async def _tool_problems(record: Mapping[str, Any], tools_of: ToolNames) -> list[str]:
    """Returns the faults in the tools that a row names."""
    extra_info = record["extra_info"]
    named = {
        **dict.fromkeys(extra_info.get("tool_selection") or (), "tool_selection"),
        **dict.fromkeys(extra_info.get("tools_kwargs") or (), "tools_kwargs"),
    }
    if not named:
        return []
    try:
        tool_names = await tools_of(row_of_columns(record, "row"))
    except AgenticError as error:
        return [f"extra_info: the environment does not start, got {error}"]
    return [
        f"extra_info.{field}: the environment has no tool {name!r}; it has {sorted(tool_names)}"
        for name, field in named.items()
        if name not in tool_names
    ]


def _iter_calls(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields name and arguments of the calls in a prompt whose arguments are objects."""
    prompt = record.get("prompt")
    for message in prompt if isinstance(prompt, list) else ():
        for call in (message.get("tool_calls") if isinstance(message, Mapping) else None) or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping) and isinstance(function.get("arguments"), Mapping):
                yield str(function.get("name")), function["arguments"]
