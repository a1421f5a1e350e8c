"""Reasoning that leads from a question and its knowledge to the answer, without any call of a tool (reasoning actions
of first-order action synthesis, FAS).

The model first answers parts of the question from memory, then corrects its reasoning by the knowledge. A row is
written if the answer at its end is that of the file.

Paper: https://arxiv.org/abs/2509.13310 (AgentFounder: reasoning actions)

Deviations: answers are compared in normal form, not by a judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.settings import Settings
from verl_agentic.data.making.maker import Candidate, Record, ask, needed
from verl_agentic.data.making.record_answer import find_answer
from verl_agentic.data.making.tool_text import find_tool_text
from verl_agentic.data.overlap.row_task import prompt_text
from verl_agentic.data.prepare import read_records
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches

_MARK = "FINAL ANSWER:"
_DRAFT = (
    "Question: {question}\n\nDivide the question into smaller ones, and answer each from what you remember. Call no "
    "tool. Say where you are not sure."
)
_REFINE = (
    "Question: {question}\n\nWhat is known:\n{knowledge}\n\nA draft of the reasoning, which may be wrong:\n{draft}\n\n"
    "Write the reasoning anew, so that each step follows from what is known. Call no tool, and do not mention the "
    f"draft. End with one line: {_MARK} and the answer alone."
)


class ReasoningActionsMaker(Settings):
    """Options."""

    KEEPS_NEAR: ClassVar = True
    """Questions on one text have nearly the same prompts."""
    questions: str = ""
    """Parquet or JSON lines with a question, as `data check` reads prompts, its answer in `answer` or
    `reward_model.ground_truth`, and texts that lead to it in `knowledge`."""

    def check_together(self) -> None:
        if not self.questions:
            raise ConfigError("questions must name a file, got none; add --option questions=FILE")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields the reasoning for each question of the file, in order."""
        chat = needed(model, "reasoning_actions")
        for number, record in enumerate(read_records(Path(self.questions))[:n]):
            where = f"{self.questions}: row {number}"
            yield Candidate(
                key=f"{seed}-{number}", record=lambda record=record, where=where: _make_reasoning(chat, record, where)
            )

    async def verify(self, record: Record) -> str | None:
        """Returns why reasoning is unfit: a call or the output of a tool, or another answer."""
        text = record["messages"][-1]["content"]
        if (tool_text := find_tool_text(text)) is not None:
            return f"a call or an output in the reasoning: {tool_text!r}"
        reasoning, mark, answer = text.rpartition(_MARK)
        if not mark or not reasoning.strip():
            return "no reasoning before a final answer"
        if not matches(answer.strip(), record["answers"]):
            return f"another answer: {answer.strip()[:80]!r}"
        return None


async def _make_reasoning(model: ChatModel, record: Mapping[str, Any], where: str) -> Record:
    question = prompt_text(record, where)
    answer = find_answer(record, where)
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    answers = golden_answers_of(str(answer) if is_number else answer)
    texts = record.get("knowledge") or ()
    knowledge = "\n".join(f"- {text}" for text in ([texts] if isinstance(texts, str) else texts))
    if not knowledge:
        raise DataError(f"{where} has no knowledge, got the columns {sorted(record)}; add the column knowledge")
    draft = await ask(model, _DRAFT.format(question=question))
    reasoning = await ask(model, _REFINE.format(question=question, knowledge=knowledge, draft=draft))
    request = f"{question}\n\nWhat is known:\n{knowledge}\n\nReason step by step. End with one line: {_MARK}"
    return {
        "messages": [{"role": "user", "content": request}, {"role": "assistant", "content": reasoning}],
        "question": question,
        "answers": list(answers),
        "data_source": "reasoning_actions",
    }


MAKER = ReasoningActionsMaker
