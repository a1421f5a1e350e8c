"""Answers and actions that know nothing, or less than the task asks for: none may be paid beyond chance.

Plays constants, solutions of other rows, lines of the question, altered solutions and, in worlds, the same action for
ever. Other spellings of the solution must be paid.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message, StopReason, ToolCall
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.records.episode import Episode
from verl_agentic.evaluate.env_validation.adversaries import NextText
from verl_agentic.evaluate.env_validation.env_harness import EnvHarness
from verl_agentic.evaluate.env_validation.scripted_rewards import read_rewards
from verl_agentic.graders.answers.gold_answers import altered_answers, gold_of, spellings_of
from verl_agentic.rewards.scorer import Scorer

CONSTANTS = ("0", "1", "-1", "2", "yes", "no", "True", "False", "A", "B", "None", "[]", "x")
_SIGNIFICANCE = 1e-3
_MAX_LINES, _MAX_ACTIONS, _MAX_ACTION_TURNS = 8, 4, 32


@dataclass(kw_only=True)
class AnswerFindings:
    """Faults of a grader."""

    paid: list[str] = field(default_factory=list)
    """Policies that are paid above their chance."""
    refused: list[str] = field(default_factory=list)
    """Right answers that are not paid."""
    num_policies: int = 0
    best_action: tuple[str, float] = ("", 0.0)
    """The constant action of the highest mean outcome."""


def exceeds_chance(num_paid: int, num_rows: int, chance: float) -> bool:
    """Returns whether so many paid rows have a probability below 0.001, by the exact binomial distribution."""
    tail = sum(
        math.comb(num_rows, k) * chance**k * (1 - chance) ** (num_rows - k) for k in range(num_paid, num_rows + 1)
    )
    return num_paid > 0 and tail < _SIGNIFICANCE


async def check_answers(
    harness: EnvHarness, indices: Sequence[int], solved: Sequence[Episode], *, scorer: Scorer | None = None
) -> AnswerFindings:
    """Plays all policies.

    Args:
        harness: the environment.
        indices: rows to play, whose solutions are paid.
        solved: the solutions' episodes of these rows.
        scorer: of a rubric; None: the rewards of the environment.
    """
    rows = [harness.rows[index] for index in indices]
    answers = [_find_final_answer(episode, row) for episode, row in zip(solved, rows, strict=True)]
    findings = AnswerFindings()
    if all(answers):
        check = _AnswerCheck(harness, rows, solved, [answer for answer in answers if answer], findings, scorer)
        await check.play_constants()
        await check.play_questions()
        await check.play_variants()
    elif not any(answers):
        await _play_actions(harness, rows, solved, findings, scorer)
    return findings


async def check_solved_rows(
    harness: EnvHarness, solved: Sequence[Episode], *, max_rows: int, scorer: Scorer | None = None
) -> tuple[AnswerFindings, int]:
    """Plays all policies on rows that are spread over those of the harness, and whose solutions have the outcome 1.

    Args:
        harness: the environment.
        solved: the solutions' episodes of all rows; empty without a solution.
        max_rows: maximum number of rows.
        scorer: of a rubric; None: the rewards of the environment.

    Returns:
        The findings, and the number of rows.
    """
    indices = [
        index
        for index in spread_indices(len(solved), max_rows)
        if not solved[index].is_void and (await read_rewards(solved[index], harness.rows[index], scorer=scorer))[0] >= 1
    ]
    if not indices:
        return AnswerFindings(), 0
    return await check_answers(harness, indices, [solved[index] for index in indices], scorer=scorer), len(indices)


def spread_indices(num_rows: int, max_rows: int) -> range:
    """Returns at most so many indices, at equal distances."""
    return range(0, num_rows, max(1, -(-num_rows // max_rows)))


@dataclass(frozen=True)
class _Answer:
    """A final answer: the gold in it, and the text around."""

    before: str
    gold: str
    after: str


def _find_final_answer(episode: Episode, row: EnvRow) -> _Answer | None:
    """Returns the final answer of a solution if it holds an answer of the row's ground truth."""
    message = episode.messages[-1] if episode.messages else None
    if message is None or message.role != "assistant" or episode.stop_reason is not StopReason.ANSWERED:
        return None
    truth = row.ground_truth
    golds = [truth["answer"]] if isinstance(truth, dict) and isinstance(truth.get("answer"), str) else gold_of(truth)
    for gold in map(str.strip, golds):
        before, separator, after = message.content.rpartition(gold)
        if gold and separator:
            return _Answer(before, gold, after)
    return None


@dataclass
class _AnswerCheck:
    harness: EnvHarness
    rows: Sequence[EnvRow]
    solved: Sequence[Episode]
    answers: Sequence[_Answer]
    findings: AnswerFindings
    scorer: Scorer | None
    paid_texts: dict[tuple[int, str], bool] = field(default_factory=dict)
    """Place of a row and text -> whether it is paid."""

    async def play_constants(self) -> None:
        """Plays constants and the solutions of other rows."""
        golds = [answer.gold for answer in self.answers]
        for text in dict.fromkeys((*CONSTANTS, "", *golds)):
            paid = await self._check_paid([text] * len(self.rows))
            num_golds = sum(_is_same(text, gold) for gold in golds)
            chance = (num_golds + 1) / (len(golds) + 1)
            if sum(paid) > num_golds and exceeds_chance(sum(paid), len(paid), chance):
                self.findings.paid.append(f"always {text[:60]!r}: {_format_count(paid)}, the answer of {num_golds}")

    async def play_questions(self) -> None:
        """Plays each line of the question, except the answer."""
        questions = [row.prompt[-1].content for row in self.rows]
        lines = [[line for line in (text, *text.splitlines()) if line.strip()][: 1 + _MAX_LINES] for text in questions]
        paid = [False] * len(self.rows)
        for number in range(max(map(len, lines))):
            texts = [
                row_lines[number] if number < len(row_lines) and not _is_same(row_lines[number], answer.gold) else None
                for row_lines, answer in zip(lines, self.answers, strict=True)
            ]
            paid = list(map(operator.or_, paid, await self._check_paid(texts)))
        if exceeds_chance(sum(paid), len(paid), 1 / (len(paid) + 1)):
            self.findings.paid.append(f"a line of the question: {_format_count(paid)}")

    async def play_variants(self) -> None:
        """Plays solutions that are altered, and solutions that are spelled otherwise."""
        for variants_of, is_right in ((altered_answers, False), (spellings_of, True)):
            variants = [variants_of(answer.gold) for answer in self.answers]
            for kind in sorted({kind for row_variants in variants for kind in row_variants}):
                texts = [row_variants.get(kind) for row_variants in variants]
                paid = await self._check_paid(texts)
                wrong = [kind in row_variants and p != is_right for row_variants, p in zip(variants, paid, strict=True)]
                example = next((str(text)[:80] for text, is_wrong in zip(texts, wrong, strict=True) if is_wrong), "")
                if any(wrong) and is_right:
                    self.findings.refused.append(f"{kind}: {_format_count(wrong)}, such as {example!r}")
                elif any(wrong):
                    self.findings.paid.append(f"{kind}: {_format_count(wrong)}, such as {example!r}")

    async def _check_paid(self, texts: Sequence[str | None]) -> list[bool]:
        """Returns for each row whether the solution is paid with this text in the place of its answer; False for None.

        A text is played once in each row.
        """
        keys = [(place, text) for place, text in enumerate(texts) if text is not None]
        new = [key for key in keys if key not in self.paid_texts]
        begins = []
        for place, text in new:
            answer = self.answers[place]
            text = f"{answer.before}{text}{answer.after}"
            begins.append(_make_replay(self.solved[place], text, self.harness.codec, gold=answer.gold))
        turns = 1 + max(len(episode.actions) for episode in self.solved)
        rows = [self.rows[place] for place, _ in new]
        paid = await _play_policies(self.harness, begins, rows, max_turns=turns, scorer=self.scorer)
        self.paid_texts.update(zip(new, paid, strict=True))
        self.findings.num_policies += 1
        return [text is not None and self.paid_texts[place, text] for place, text in enumerate(texts)]


async def _play_policies(
    harness: EnvHarness,
    begins: Sequence[Callable[[], NextText]],
    rows: Sequence[EnvRow],
    *,
    max_turns: int,
    scorer: Scorer | None,
) -> list[bool]:
    """Returns for each row whether its policy is paid."""
    episodes = await harness.run_each(begins, rows, max_turns=max_turns)
    return [
        not episode.is_void and (await read_rewards(episode, row, scorer=scorer))[0] > 0
        for episode, row in zip(episodes, rows, strict=True)
    ]


def _make_replay(episode: Episode, answer: str, codec: Codec, *, gold: str) -> Callable[[], NextText]:
    """Returns a policy that repeats the calls of a solution, and then gives an answer."""
    turns = [m for m in episode.messages if m.role == "assistant" and m.tool_calls]
    rendered_gold = codec.render_action(Message("assistant", gold))
    if (
        rendered_gold == gold or rendered_gold not in episode.messages[-1].content
    ):  # else: the message has the protocol's tags
        answer = codec.render_action(Message("assistant", answer))

    def begin() -> NextText:
        pending_turns = list(turns)
        return lambda messages: codec.render_action(pending_turns.pop(0)) if pending_turns else answer

    return begin


async def _play_actions(
    harness: EnvHarness,
    rows: Sequence[EnvRow],
    solved: Sequence[Episode],
    findings: AnswerFindings,
    scorer: Scorer | None,
) -> None:
    """Plays each of the commonest actions of the solutions for ever."""
    actions = [[_make_key(call) for call in _list_calls(episode)] for episode in solved]
    calls = {_make_key(call): call for episode in solved for call in _list_calls(episode)}
    counts = Counter(key for row_actions in actions for key in set(row_actions))
    card = harness.package.card
    for key, _ in counts.most_common(_MAX_ACTIONS):
        call = ToolCall(calls[key].name, calls[key].arguments)
        text = harness.codec.render_action(Message("assistant", "", tool_calls=(call,)))
        begins = [lambda text=text: lambda messages: text] * len(rows)
        paid = await _play_policies(harness, begins, rows, max_turns=_MAX_ACTION_TURNS, scorer=scorer)
        num_golds = sum(set(row_actions) == {key} for row_actions in actions)
        bound = card.max_scripted if card is not None else 0.0
        chance = max(bound, (num_golds + 1) / (len(rows) + 1))
        name = f"always {call.name}({', '.join(map(str, call.arguments.values()))})"[:80]
        findings.num_policies += 1
        findings.best_action = max(findings.best_action, (name, sum(paid) / len(paid)), key=lambda best: best[1])
        if sum(paid) > num_golds and exceeds_chance(sum(paid), len(paid), chance):
            findings.paid.append(f"{name}: {_format_count(paid)}")


def _make_key(call: ToolCall) -> str:
    return f"{call.name} {sorted((name, repr(value)) for name, value in call.arguments.items())}"


def _list_calls(episode: Episode) -> list[ToolCall]:
    return [call for message in episode.messages if message.role == "assistant" for call in message.tool_calls]


def _is_same(text: str, gold: str) -> bool:
    return "".join(text.split()).casefold() == "".join(gold.split()).casefold()


def _format_count(paid: Sequence[bool]) -> str:
    return f"{sum(paid)} of {len(paid)} rows"
