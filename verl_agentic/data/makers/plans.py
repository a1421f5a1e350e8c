"""Subgoals of a planner model for the rows of a file, in `extra_info.plan`, where `llm_subgoals` rewards them.

The planner sees the task and the tools, never the ground truth. A subgoal whose check nothing can fulfil, such as one
on an unknown tool, becomes unverifiable: it counts as planned and gives 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from verl_agentic.base.errors import ConfigError, DataError, EnvError, boundary
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask, needed
from verl_agentic.data.prepare import read_records
from verl_agentic.episode.codec.codec import Schema
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.turns.planned_subgoals import MAX_SUBGOALS, read_plan
from verl_agentic.graders.turns.subgoal_checks import Subgoal
from verl_agentic.log.files.parquet import extra_of
from verl_agentic.log.files.rows import row_of_columns

_ASKED = """Plan the subgoals of a task that an agent solves with tools. Do not solve the task.

Task:
{task}

Tools:
{tools}

Answer with one JSON object: {{"subgoals": [{{"name": ..., "check": ...}}, ...]}}, with 1 to {most} subgoals of \
different names, in their order. `check` is fulfilled by the turn that reaches the subgoal: {{"tool": NAME, \
"arguments": {{...}}}} for a successful call with at least these arguments, {{"text": ...}} for words that the agent \
must write, or null if neither shows that the subgoal is reached. Prefer calls. Write an argument only if it follows \
from the task."""


class PlansMaker(Settings):
    """Options."""

    KEEPS_NEAR: ClassVar = True
    """The rows are tasks that exist."""
    rows: str = ""
    """Parquet or JSON lines with rows for RL."""
    env: str = ""
    """Environment of the rows that name none."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment's `make_env`."""
    max_subgoals: int = setting(MAX_SUBGOALS, min=1)
    """Maximum number of subgoals in a plan, as that of `llm_subgoals`."""

    def check_together(self) -> None:
        if not self.rows:
            raise ConfigError("rows must name a file, got none; add --option rows=FILE")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields the rows of the file, in order; rows that have a plan keep it."""
        chat = needed(model, "plans")
        for number, record in enumerate(read_records(Path(self.rows))[:n]):
            yield Candidate(
                key=f"{seed}-{number}", record=lambda number=number, record=record: self._add_plan(chat, record, number)
            )

    async def verify(self, record: Record) -> str | None:
        """Returns why a plan is unfit: it has another form, or no subgoal that can be verified."""
        try:
            plan = read_plan(extra_of(record["extra_info"])["plan"], max_subgoals=self.max_subgoals)
        except DataError as error:
            return f"the plan has another form: {error}"
        return None if plan.subgoals else f"no subgoal can be verified: {list(plan.unverifiable)}"

    async def _add_plan(self, model: ChatModel, record: Record, number: int) -> Record:
        row = row_of_columns(record, f"{self.rows}: row {number}")
        if row.extra.get("plan"):
            return record
        task, tools = await self._start_task(row)
        reply = await ask(
            model, _ASKED.format(task=task, tools=json.dumps(tools, ensure_ascii=False), most=self.max_subgoals)
        )
        try:
            plan = read_plan(reply, max_subgoals=self.max_subgoals)
        except DataError as error:
            raise RefusedError(f"the plan has another form: {error}") from error
        parameters = {tool["function"]["name"]: _list_parameters(tool) for tool in tools}
        entries = [
            {"name": subgoal.name, "check": _write_check(subgoal) if _is_reachable(subgoal, parameters) else None}
            for subgoal in plan.subgoals
        ] + [{"name": name, "check": None} for name in plan.unverifiable]
        text = json.dumps({"subgoals": entries}, ensure_ascii=False)
        return {**record, "extra_info": {**(record.get("extra_info") or {}), "plan": text}}

    async def _start_task(self, row: Any) -> tuple[str, list[Schema]]:
        """Returns the prompt of the started environment as text, and the schemas of the policy's tools."""
        name = str(row.extra.get("env") or self.env)
        if not name:
            raise ConfigError(f"{self.rows} names no environment; add --option env=NAME")
        make_env = load_env_package(name).configured(self.config)
        with boundary(EnvError, f"starting {name!r}"):
            env = make_env(row)
            try:
                messages, tools = await env.start(), list_schemas(env.tools)
            finally:
                await env.close()
        return "\n\n".join(f"{message.role}: {message.content}" for message in messages), tools


def _list_parameters(tool: Schema) -> set[str]:
    return set((tool["function"].get("parameters") or {}).get("properties") or ())


def _is_reachable(subgoal: Subgoal, parameters: Mapping[str, set[str]]) -> bool:
    """Returns whether a turn can fulfil the check; a planner does not know the numbers that an environment reports."""
    if subgoal.info is not None:
        return False
    return subgoal.tool is None or (subgoal.tool in parameters and subgoal.arguments.keys() <= parameters[subgoal.tool])


def _write_check(subgoal: Subgoal) -> dict[str, Any]:
    check = {"tool": subgoal.tool, "arguments": dict(subgoal.arguments), "text": subgoal.text}
    return {key: value for key, value in check.items() if value}


MAKER = PlansMaker
