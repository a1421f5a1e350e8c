"""Questions of maths, as in R-Zero: the most common answer of the attempts is the label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from verl_agentic import EnvRow, Message
from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.base.text.tags import last_block
from verl_agentic.data.proposer_env import InvalidProposalError, Proposal, ProposerEnv
from verl_agentic.graders.answers.answer_classes import answer_classes

_MAX_CHARS = 4_000


def solve_row(task_id: str, question: str, answer: str) -> EnvRow:
    """Returns the solver's row of a question."""
    return EnvRow(
        prompt=(Message("user", f"{question}\n\nReason step by step, and put the final answer within \\boxed{{}}."),),
        ground_truth=answer,
        data_source="self_play_math",
        extra={"task_id": task_id, "kind": "math", "role": "solve"},
    )


class QuestionProposer(ProposerEnv):
    """Poses any question with an answer of the proposer; the solver's majority decides what is right."""

    async def verify(self, answer: str) -> Proposal:
        """Returns the question. It needs an answer in a box, which is not used, as in R-Zero."""
        question = last_block([answer], "question") or ""
        if question and question in self.row.prompt[-1].content:
            raise InvalidProposalError("it is the question of the prompt", is_well_formed=True)
        if not question or len(question) > _MAX_CHARS or not last_boxed(answer):
            raise InvalidProposalError("it lacks a question between tags or a boxed answer", is_well_formed=False)
        return Proposal(row=solve_row("proposed", question, ""))

    async def grade(self, proposal: Proposal, answers: Sequence[str]) -> tuple[EnvRow, float]:
        """Returns the row with the most common answer, and the share of the attempts that gave it."""
        boxed = [last_boxed(answer) or "" for answer in answers]
        counts = Counter(answer_class for answer_class in await answer_classes(boxed) if answer_class)
        if not counts:
            return proposal.row, 0.0
        label, count = max(counts.items(), key=lambda item: item[1])
        return replace(proposal.row, ground_truth=label), count / len(answers)
