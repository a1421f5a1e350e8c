"""Search self-play: the proposer searches for facts about a given answer, and writes a question with that answer."""

from __future__ import annotations

import random

from verl_agentic import Action, EnvRow, Message, Observation
from verl_agentic.base.text.tags import last_block
from verl_agentic.data.proposer_env import InvalidProposalError, Proposal, ProposerEnv, SelfPlay
from verl_agentic.rewards.answers.short_answers import exact_match, mentions
from verl_agentic.tools.search.retriever import Retriever
from verl_agentic.tools.search.search_tool import SearchTool, render_passages

DOCUMENTS = "Answer the question from these documents alone.\n\n"
_MAX_CHARS = 2_000


class SearchProposer(ProposerEnv):
    """Verifies that a copy of the policy can answer the question from the documents of the proposer's own searches.

    Documents of other questions are mixed in, so that the only entity of the documents is no answer.
    """

    def __init__(
        self,
        row: EnvRow,
        retriever: Retriever,
        *,
        tool: SearchTool,
        settings: SelfPlay,
        solver_turns: int,
        max_passage_chars: int,
        tool_timeout_s: float,
    ) -> None:
        super().__init__(row, [tool], settings=settings, tool_timeout_s=tool_timeout_s)
        self._retriever, self._tool, self._solver_turns = retriever, tool, solver_turns
        self._max_passage_chars = max_passage_chars
        self._target = str(row.extra["target"])
        self._documents: list[str] = []

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt; the first episode of a process waits for the index."""
        await self._retriever.ready()
        return await super().start()

    async def step(self, action: Action) -> Observation:
        """Searches, or verifies the question."""
        observation = await super().step(action)
        self._documents += [message.content for message in observation.messages if not message.is_error]
        return observation

    async def verify(self, answer: str) -> Proposal:
        """Returns the question, if it passes the check of SSP."""
        question = last_block([answer], "question") or ""
        if not question or len(question) > _MAX_CHARS:
            raise InvalidProposalError("it lacks a question between tags", is_well_formed=False, rag_check=0.0)
        if not self._documents or mentions(question, [self._target]):
            reason = "the question contains its answer" if self._documents else "nothing was searched for"
            raise InvalidProposalError(reason, is_well_formed=True, rag_check=0.0)
        reply = await self.ask([Message("user", await self._with_documents(question))])
        if not exact_match(reply, [self._target]):
            reason = "the documents of the searches do not lead to the answer"
            raise InvalidProposalError(reason, is_well_formed=True, rag_check=0.0)
        row = EnvRow(
            prompt=(Message("user", question),),
            ground_truth=self._target,
            data_source="search_qa",
            extra={"corpus": self.row.extra["corpus"]},
        )
        return Proposal(row=row, tools=[self._tool], max_turns=self._solver_turns, info={"rag_check": 1.0})

    async def is_right(self, proposal: Proposal, answer: str) -> bool:
        """Returns whether the answer of the solver is the given one."""
        return bool(exact_match(answer, [self._target]))

    async def _with_documents(self, question: str) -> str:
        noise = await self._retriever.search([str(query) for query in self.row.extra["noise"]], top_k=1)
        mixed = [
            *self._documents,
            *(render_passages(passages, max_chars=self._max_passage_chars) for passages in noise),
        ]
        random.Random(question).shuffle(mixed)
        return DOCUMENTS + "\n".join(mixed) + f"\n\nQuestion: {question}"
