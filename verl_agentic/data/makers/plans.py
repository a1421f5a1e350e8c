"""Plans and first reasoning steps for questions, without any call of a tool (first-order action synthesis, FAS).

Paper: https://arxiv.org/abs/2509.13310 (AgentFounder: planning actions and reasoning actions)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.data.making.maker import Candidate, Record, ask, needed
from verl_agentic.data.overlap.row_task import prompt_text
from verl_agentic.data.prepare import read_records
from verl_agentic.graders.models.chat_model import ChatModel

_PLAN = (
    "Question: {question}\n\nWrite plan {number} of {plans} for an agent with tools: a numbered list of steps that "
    "differs from the usual plan. Call no tool, and invent no results."
)
_REASON = (
    "Question: {question}\n\nPlan:\n{plan}\n\nReason about the first step: what is known, what must be found, and what "
    "to do next. Call no tool, and invent no results."
)
_CALL = re.compile(
    r"</?(?:tool_call|tool_response|search|information|python|code|execute|observation)\b"
    r"|^\s*(?:observation|action input)\s*:|\"arguments\"\s*:|<\|",
    re.IGNORECASE | re.MULTILINE,
)


class PlansMaker(Settings):
    """Options."""

    questions: str = ""
    """Parquet or JSON lines with the questions, as `data check` reads prompts."""
    plans: int = setting(4, min=1)
    """Plans for each question."""

    def check_together(self) -> None:
        if not self.questions:
            raise ConfigError("questions must name a file, got none; add --option questions=FILE")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields a plan and its first reasoning step for each question in turn."""
        chat = needed(model, "plans")
        records = read_records(Path(self.questions))
        questions = [prompt_text(record, f"{self.questions}: row {row}") for row, record in enumerate(records)]
        for number in range(min(n, len(questions) * self.plans)):
            row, plan = number // self.plans, number % self.plans
            yield Candidate(
                key=f"{seed}-{row}-{plan}",
                record=lambda row=row, plan=plan: self._make_plan(chat, questions[row], plan),
            )

    async def verify(self, record: Record) -> str | None:
        """Returns why a plan is unfit: it is empty, or has a call or the output of a tool."""
        for name in ("plan", "reasoning"):
            if not record[name]:
                return f"no {name}"
            if match := _CALL.search(record[name]):
                return f"a call or an output in the {name}: {match[0]!r}"
        return None

    async def _make_plan(self, model: ChatModel, question: str, number: int) -> Record:
        plan = await ask(model, _PLAN.format(question=question, number=number + 1, plans=self.plans))
        reasoning = await ask(model, _REASON.format(question=question, plan=plan))
        return {
            "messages": [
                {"role": "user", "content": f"{question}\n\nWrite a plan, and reason about its first step."},
                {"role": "assistant", "content": f"Plan:\n{plan}\n\n{reasoning}"},
            ],
            "plan": plan,
            "reasoning": reasoning,
            # Plans of one question differ in this, unless they are equal.
            "extra_info": {"plan_digest": hashlib.sha256(f"{plan}\n\n{reasoning}".encode()).hexdigest()[:16]},
            "data_source": "plans",
        }


MAKER = PlansMaker
