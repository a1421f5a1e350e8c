"""The environment `function_calling`: every row has its own tools and expected calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from verl_agentic import ConfigError, DataError, EnvRow, Reward, StopReason, ToolEnv, ToolResult, Transcript
from verl_agentic.base.tools.schema_check import ArgumentSchema, argument_schema, explain

from .answers import TOPICS, asks_for, refuses, says_something
from .apis import APIS
from .match import ExpectedCall, MadeCall, Strings, plain, same_calls

Case = Literal[
    "single",
    "multiple",
    "parallel",
    "parallel_multiple",
    "sequential",
    "missing_function",
    "missing_parameter",
    "irrelevance",
]
"""Kind of a row. The last three need an answer and no call: that no tool fits, a question about missing values, and
any answer."""


@dataclass(frozen=True, kw_only=True)
class FunctionRow:
    """A parsed dataset row."""

    case: Case
    tools: Sequence[Mapping[str, Any]]
    """OpenAI function schemas."""
    expected: Sequence[ExpectedCall]
    asks: str | None
    """Topic (see `answers.TOPICS`) that a question must be about; of `missing_parameter` rows."""
    strings: Strings
    """Comparison of texts in arguments."""
    schemas: Mapping[str, ArgumentSchema] = field(repr=False)
    """Name of a tool -> its compiled parameters."""

    @classmethod
    def read(cls, row: EnvRow) -> FunctionRow:
        """Parses `row.ground_truth` and `row.extra`.

        Raises:
            DataError: a field is missing or malformed; the message names the row.
        """
        try:
            return cls._read_row(row)
        except DataError as cause:
            raise DataError(f"row {row.extra.get('task_id')!r}: {cause}") from cause

    @classmethod
    def _read_row(cls, row: EnvRow) -> FunctionRow:
        case: Any
        strings: Any
        case, strings = row.extra.get("case"), row.extra.get("strings") or "exact"
        asks = row.extra.get("asks") or None
        if case not in get_args(Case) or strings not in get_args(Strings):
            raise DataError(
                f"case is one of {get_args(Case)} and strings of {get_args(Strings)}, got {case}, {strings}"
            )
        tools, calls = _from_json(row.extra.get("tools"), "tools"), _from_json(row.ground_truth, "ground_truth")
        expected = [ExpectedCall.from_json(call) for call in calls]
        schemas = {_name_of(tool): argument_schema(_parameters_of(tool)) for tool in tools}
        if bool(expected) == (case in _WITHOUT_CALLS) or not {call.name for call in expected} <= set(schemas):
            raise DataError(
                f"the expected calls must fit the case {case!r} and the tools {sorted(schemas)}, got {calls}"
            )
        if (case == "missing_parameter") != (asks in TOPICS):
            raise DataError(
                f"asks must be one of {sorted(TOPICS)} for missing_parameter and else nothing, got {asks!r}"
            )
        return cls(case=case, tools=tools, expected=expected, asks=asks, strings=strings, schemas=schemas)


_WITHOUT_CALLS: tuple[Case, ...] = ("missing_function", "missing_parameter", "irrelevance")


class SimulatedTool:
    """A tool that checks arguments and simulates an answer; equal calls get equal answers."""

    def __init__(self, schema: Mapping[str, Any], *, parameters: ArgumentSchema, calls: list[MadeCall]) -> None:
        """Takes the schema for the policy, and the list that records valid calls."""
        self.schema = schema
        self.name = _name_of(schema)
        self._parameters = parameters
        self._made = calls

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns a JSON value, or all faults of the arguments."""
        try:
            plain_arguments = plain(arguments)
            mismatches = self._parameters.mismatches(plain_arguments)
            if mismatches:
                return ToolResult(explain(self.name, mismatches), is_error=True, error_kind="wrong_arguments")
            answer = json.dumps(
                respond(self.schema, self._parameters.with_defaults(plain_arguments)), ensure_ascii=False
            )
        except (ArithmeticError, ValueError, RecursionError):  # numbers of a thousand digits, lists a thousand deep
            text = f"Error: {self.name!r} cannot work with values that large"
            return ToolResult(text, is_error=True, error_kind="wrong_arguments")
        self._made.append(MadeCall(name=self.name, arguments=plain_arguments))
        return ToolResult(answer)


class FunctionCallingEnv(ToolEnv):
    """A request, the tools of its row, and the calls it needs."""

    def __init__(self, row: EnvRow, *, rejected_calls: Literal["ignored", "wrong"], max_parallel_calls: int) -> None:
        self._task = FunctionRow.read(row)
        self._rejected_calls = rejected_calls
        self._made: list[MadeCall] = []
        tools = [
            SimulatedTool(schema, parameters=self._task.schemas[_name_of(schema)], calls=self._made)
            for schema in self._task.tools
        ]
        super().__init__(row, tools, max_parallel_calls=max_parallel_calls)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if the executed calls are the expected ones, each once. If none is expected, the outcome is
        1 for a right answer without any call."""
        task, tried = self._task, sum(len(action.tool_calls) for action in transcript.actions)
        if task.case in _WITHOUT_CALLS:
            is_answered = tried == 0 and transcript.stop_reason is StopReason.ANSWERED
            return Reward(float(is_answered and self._is_right(transcript)))
        if self._rejected_calls == "wrong" and tried != len(self._made):
            return Reward(0.0)
        is_ordered = task.case == "sequential"
        return Reward(
            float(
                same_calls(self._made, task.expected, schemas=task.schemas, is_ordered=is_ordered, strings=task.strings)
            )
        )

    def _is_right(self, transcript: Transcript) -> bool:
        prompt = [message.content for message in transcript.messages if message.role != "assistant"]
        if self._task.case == "missing_function":
            return refuses(transcript.final_answer, prompt=prompt)
        if self._task.asks is not None:
            return asks_for(self._task.asks, transcript.final_answer, prompt=prompt)
        return says_something(transcript.final_answer, prompt=prompt)


def make_env(
    row: EnvRow, *, rejected_calls: Literal["ignored", "wrong"] = "ignored", max_parallel_calls: int = 8
) -> FunctionCallingEnv:
    """Returns the environment of one episode.

    Args:
        row: a row of `make_rows`, `from_bfcl` or `from_toolrl`.
        rejected_calls: treatment of invalid calls (unknown tool, wrong arguments, invalid JSON) that the policy
            corrected later. `ignored`: they do not count; `wrong`: they count as wrong calls.
        max_parallel_calls: maximum parallel calls of one turn.

    Raises:
        DataError: the row is malformed.
        ConfigError: an option is invalid.
    """
    if rejected_calls not in ("ignored", "wrong"):
        raise ConfigError(f"rejected_calls must be 'ignored' or 'wrong', got {rejected_calls!r}")
    return FunctionCallingEnv(row, rejected_calls=rejected_calls, max_parallel_calls=max_parallel_calls)


def respond(tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Returns the answer of a tool to valid arguments, defaults included: simulated for the tools of `apis.APIS`, else
    a receipt."""
    name = _name_of(tool)
    if name in APIS and APIS[name].schema == tool:
        return APIS[name].respond(arguments)
    digest = hashlib.sha256(json.dumps([name, arguments], sort_keys=True).encode()).hexdigest()
    return {"status": "ok", "result_id": digest[:8]}


def _from_json(value: Any, subject: str) -> list[Any]:
    # JSON text, because the files that rows are stored in give all objects of a column the same keys.
    try:
        items = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        items = None
    if not isinstance(items, list):
        raise DataError(f"{subject} must be a list or the JSON text of one, got {str(value)[:200]!r}; mend the row")
    return items


def _function_of(tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise DataError(
            f'a tool must be {{"type": "function", "function": {{"name": ...}}}}, got {tool!r}; mend the row'
        )
    return function


def _name_of(tool: Any) -> str:
    return _function_of(tool)["name"]


def _parameters_of(tool: Any) -> Mapping[str, Any]:
    return _function_of(tool).get("parameters") or {"type": "object", "properties": {}}
