"""Worked solutions in which Python computes: conversations for the cold start of models that reason with code.

A model rewrites the solutions of a file, so that code does the calculations. The code is run by `python_math`, whose
outputs are those of training. A row is written if all code runs, prints what the solution goes on with, and the answer
is right.

Paper: https://arxiv.org/abs/2504.11536 (ReTool, section 2.2: code-integrated reasoning from text, verified by form and
answer)

Deviations: the code is run, and outputs that differ from the written ones are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvError, boundary
from verl_agentic.base.settings import Settings
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask, needed
from verl_agentic.data.making.play_solution import play_solution
from verl_agentic.data.making.record_answer import find_answer
from verl_agentic.data.overlap.row_task import prompt_text
from verl_agentic.data.prepare import read_records
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.maths.boxed_math import truth_problem
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.log.files.parquet import extra_of

_REWRITE = r"""Rewrite the solution of a problem, so that Python does the calculations.

Problem:
{question}

Solution:
{solution}

Keep the reasoning in words, in its order. Where a calculation is done by hand, write a complete Python script between
<code> and </code>, which prints its result, and behind it what it prints between <interpreter> and </interpreter>. Go
on with that result. End with the answer in \boxed{{}}."""
_GSM8K_MARK = "####"
_STEP = re.compile(r"<code>(.*?)</code>\s*(?:<interpreter>(.*?)</interpreter>)?", re.DOTALL)
_TAG = re.compile(r"</?(?:code|interpreter)>")
_FRAME = re.compile(r"</?(?:think|answer)>")
"""Tags around thoughts and answers; a protocol writes its own."""
_FENCE = re.compile(r"\s*```(?:python|py)?\n(.*?)\n?```\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class _Step:
    text: str
    code: str
    written_output: str | None


class CodeSolutionsMaker(Settings):
    """Options."""

    source: str = ""
    """Parquet or JSON lines with a question, as `data check` reads prompts, its answer in `answer` or
    `reward_model.ground_truth`, and a solution in `solution` or `extra_info.solution`; or the solution and `####`
    before the answer, as in GSM8K. A solution with `<code>` is used as it is; the others need a model."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `make_env` of `python_math`, such as `sandbox`."""

    def check_together(self) -> None:
        if not self.source:
            raise ConfigError("source must name a file, got none; add --option source=FILE")

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields the solutions of the file, in order."""
        for number, record in enumerate(read_records(Path(self.source))[:n]):
            yield Candidate(
                key=f"{seed}-{number}",
                record=lambda number=number, record=record: self._make_solution(model, record, number),
            )

    async def verify(self, record: Record) -> str | None:
        """Returns why a conversation is unfit: nothing is computed, or a text has tags of a call or an output."""
        written = [message for message in record["messages"] if message["role"] == "assistant"]
        if not any(message.get("tool_calls") for message in written):
            return "no code"
        texts = [message.get("content") or "" for message in written]
        if tags := [tag for text in texts for tag in _TAG.findall(text)]:
            return f"code or an output outside of a step: {tags[0]}"
        return None

    async def _make_solution(self, model: ChatModel | None, record: Mapping[str, Any], number: int) -> Record:
        row, solution = _read_task(record, f"{self.source}: row {number}")
        if "<code>" not in solution:
            chat = needed(model, "code_solutions for solutions without <code>")
            solution = await ask(chat, _REWRITE.format(question=row.prompt[-1].content, solution=solution))
        steps, end = _read_steps(solution)
        script = iter([*(_call_python(step, place) for place, step in enumerate(steps)), Message("assistant", end)])
        env = load_env_package("python_math").configured(self.config)(row)
        with boundary(EnvError, "running a solution"):
            messages, tools, outcome = await play_solution(env, lambda messages: next(script))
        outputs = [message for message in messages if message.role == "tool"]
        for step, output in zip(steps, outputs, strict=True):
            if output.is_error:
                raise RefusedError(f"code fails: {output.content[-200:]}")
            if step.written_output is not None and step.written_output.split() != output.content.split():
                raise RefusedError(f"another output: {output.content[:80]!r} for {step.written_output[:80]!r}")
        if outcome < 1:
            raise RefusedError(f"another answer: the solution ends with {end[-80:]!r}")
        return {
            "messages": [message.to_dict() for message in messages],
            "tools": [dict(tool) for tool in tools],
            "question": row.prompt[-1].content,
            "data_source": "code_solutions",
        }


def _read_task(record: Mapping[str, Any], where: str) -> tuple[EnvRow, str]:
    """Returns the task of a record, and its solution. Raises RefusedError if it is unfit."""
    prompt = record.get("prompt")
    messages = (
        [Message.from_dict(message) for message in prompt]
        if isinstance(prompt, list)
        else [Message("user", prompt_text(record, where))]
    )
    if any(message.role == "assistant" for message in messages):
        raise RefusedError("the prompt has messages of the assistant: they would be trained")
    extra = extra_of(record.get("extra_info"), where)
    solution = str(record.get("solution") or extra.get("solution") or "").strip()
    answer = find_answer(record, where)
    if not solution and _GSM8K_MARK in str(answer):
        solution, _, answer = (part.strip() for part in str(answer).rpartition(_GSM8K_MARK))
    if not solution or answer is None:
        raise RefusedError(f"no solution or no answer: the columns are {sorted(record)}")
    if problem := truth_problem(answer):
        raise RefusedError(f"an answer that nobody can give: {problem}")
    return EnvRow(prompt=tuple(messages), ground_truth=answer), solution


def _read_steps(solution: str) -> tuple[list[_Step], str]:
    """Returns the steps with code of a solution, and the text after the last one."""
    steps, end = [], 0
    for match in _STEP.finditer(solution):
        code = _FENCE.fullmatch(match[1])
        steps.append(
            _Step(
                text=_FRAME.sub("", solution[end : match.start()]).strip(),
                code=(code[1] if code else match[1]).strip("\n"),
                written_output=match[2],
            )
        )
        end = match.end()
    return steps, _FRAME.sub("", solution[end:]).strip()


def _call_python(step: _Step, place: int) -> Message:
    call = ToolCall("python", {"code": step.code}, call_id=f"step-{place}")
    return Message("assistant", step.text, tool_calls=(call,))


MAKER = CodeSolutionsMaker
