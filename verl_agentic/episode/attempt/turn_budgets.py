"""The token budgets of a turn: those of row, context and episode, and the reserve for the answer."""

from __future__ import annotations

from dataclasses import dataclass

from verl_agentic.base.types import StopReason
from verl_agentic.episode.attempt.attempt_record import AttemptRecord


@dataclass(kw_only=True)
class AttemptBudgets(AttemptRecord):
    """Computes what is left for the next turn."""

    def _compute_budget(self) -> tuple[int, StopReason, bool]:
        """Returns the next turn's token budget, the stop reason if it is used up, and whether the reserve limits it."""
        limits = self.setup.limits
        (room, reason), reserve = self._compute_room(), self._compute_reserve()
        if limits.max_turn_tokens is not None and limits.max_turn_tokens <= room - reserve:
            return limits.max_turn_tokens, StopReason.MAX_TOKENS, False
        return room - reserve, reason, reserve > 0

    def _compute_reserve(self) -> int:
        """Returns the tokens that the next turn must leave for the answer; 0 if it is the last one."""
        is_last = self._last_turn is not None or len(self.actions) + 1 >= self.setup.limits.max_turns
        reserve = self.setup.limits.answer_reserve_tokens
        return 0 if is_last or self._compute_room()[0] <= reserve else reserve

    def _compute_room(self, added: int = 0) -> tuple[int, StopReason]:
        """Returns how many tokens are left after `added` more context tokens, and the limiting budget."""
        room, reason = self._row_room(added)
        limit = self.setup.limits.max_episode_tokens
        if limit is not None and limit - self.num_sampled < room:
            return limit - self.num_sampled, StopReason.MAX_TOKENS
        return room, reason

    def _row_room(self, added: int = 0) -> tuple[int, StopReason]:
        """Returns how many tokens still fit into this row."""
        limits, row = self.setup.limits, self.trajectory
        length = len(row.response_ids) + added
        response_left = limits.max_response_tokens - length
        context_left = limits.max_context_tokens - len(row.prompt_ids) - length
        if context_left < response_left:
            return context_left, StopReason.CONTEXT_FULL
        return response_left, StopReason.MAX_TOKENS
