"""Plans and first steps of reasoning for questions, without any call of a tool (planning actions of first-order action
synthesis, FAS). A plan of a question that equals an earlier one in normal form is dropped.

Paper: https://arxiv.org/abs/2509.13310 (AgentFounder: planning actions)

Deviations: no model judges whether a plan leads to the answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.data.making.maker import Candidate, Record, ask, needed
from verl_agentic.data.making.tool_text import find_tool_text
from verl_agentic.data.overlap.row_task import prompt_text
from verl_agentic.data.prepare import read_records
from verl_agentic.graders.models.chat_model import ChatModel

_PLAN = (
    "Question: {question}\n\nWrite plan number {number} for an agent with tools: a numbered list of steps that "
    "differs from {others}. Call no tool, and invent no results."
)
_REASON = (
    "Question: {question}\n\nPlan:\n{plan}\n\nReason about the first step: what is known, what must be found, and what "
    "to do next. Call no tool, and invent no results."
)


class PlanningActionsMaker(Settings):
    """Options."""

    questions: str = ""
    """Parquet or JSON lines with the questions, as `data check` reads prompts."""
    plans: int = setting(4, min=1)
    """Plans for each question."""

    def check_together(self) -> None:
        if not self.questions:
            raise ConfigError("questions must name a file, got none; add --option questions=FILE")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields a plan and its first step of reasoning for each question in turn."""
        chat, questions = needed(model, "planning_actions"), self._read_questions()
        for number in range(min(n, len(questions) * self.plans)):
            row, plan = number // self.plans, number % self.plans
            yield Candidate(
                key=f"{seed}-{row}-{plan}",
                record=lambda row=row, plan=plan: self._make_plan(chat, questions[row], plan, "the usual plan"),
            )

    def list_cells(self) -> list[str]:
        """Returns the questions, see `CoveringMaker`."""
        return self._read_questions()

    def find_cells(self, record: Record) -> list[str]:
        """Returns the question of a row."""
        return [record["question"]]

    async def make_for(
        self, cell: str, rows: Sequence[Record], *, seed: int, number: int, model: ChatModel | None
    ) -> Record:
        """Returns another plan for a question; the model sees those that are there."""
        others = "\n\n".join(["each of these plans:", *(row["plan"] for row in rows), "It must do something else"])
        return await self._make_plan(
            needed(model, "planning_actions"), cell, len(rows) + number, others if rows else "the usual plan"
        )

    async def verify(self, record: Record) -> str | None:
        """Returns why a plan is unfit: it is empty, or has a call or the output of a tool."""
        for name in ("plan", "reasoning"):
            if not record[name]:
                return f"no {name}"
            if (text := find_tool_text(record[name])) is not None:
                return f"a call or an output in the {name}: {text!r}"
        return None

    def _read_questions(self) -> list[str]:
        records = read_records(Path(self.questions))
        return [prompt_text(record, f"{self.questions}: row {row}") for row, record in enumerate(records)]

    async def _make_plan(self, model: ChatModel, question: str, number: int, others: str) -> Record:
        plan = await ask(model, _PLAN.format(question=question, number=number + 1, others=others))
        reasoning = await ask(model, _REASON.format(question=question, plan=plan))
        return {
            "messages": [
                {"role": "user", "content": f"{question}\n\nWrite a plan, and reason about its first step."},
                {"role": "assistant", "content": f"Plan:\n{plan}\n\n{reasoning}"},
            ],
            "question": question,
            "plan": plan,
            "reasoning": reasoning,
            # Rows of one question differ in this, unless their plans are equal.
            "extra_info": {"plan_digest": hashlib.sha256(normalise(plan).encode()).hexdigest()[:16]},
            "data_source": "planning_actions",
        }


MAKER = PlanningActionsMaker
