"""Guided attempts behind the prompt without the guidance, so that a model is trained on what it will be asked.

The prompt without guidance is that of any unguided attempt at the same task in the log.

Paper: https://arxiv.org/abs/2506.11425 (Agent-RLVR: guidance is part of training only, pairs have the original prompt)

Deviations: tasks that no unguided attempt is logged of are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_agentic.data.export.logged_sessions import LoggedSession, SessionLog
from verl_agentic.graders.stored_samples import Split


class UnguidedLog(SessionLog):
    """A log whose guided rows have the prompt ids of unguided attempts."""

    _unguided: Mapping[tuple[Any, ...], LoggedSession] = {}
    """Task -> an unguided session of it."""
    _prompts: Mapping[tuple[Any, ...], Sequence[int]] = {}
    """Task -> prompt ids without guidance."""

    def sessions(self, *, split: Split | None, left_out: Counter[str]) -> list[LoggedSession]:
        """Returns the sessions of `SessionLog`, without guided ones that have several rows or no unguided prompt."""
        sessions = super().sessions(split=split, left_out=left_out)
        self._unguided = self._find_unguided(sessions)
        self._prompts = self._find_prompts()
        selection = [session for session in sessions if self._is_usable(session)]
        dropped = sum(len(session.rows) for session in sessions) - sum(len(session.rows) for session in selection)
        left_out["guided, of several rows or without an unguided attempt at the task"] += dropped
        return selection

    def tokens(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any] | None]:
        """Yields the tokens of `SessionLog`, guided rows with the unguided prompt."""
        for row, tokens in zip(rows, super().tokens(rows), strict=True):
            prompt_ids = self._prompts.get(_name_task(row)) if row["guided"] else None
            yield tokens if tokens is None or prompt_ids is None else {**tokens, "prompt_ids": list(prompt_ids)}

    def prompts(self, sessions: Sequence[LoggedSession]) -> Iterator[str]:
        """Yields the prompts of `SessionLog`, of guided sessions the unguided one."""
        lasts = [session.rows[-1] for session in sessions]
        yield from super().prompts(
            [
                self._unguided[_name_task(last)] if last["guided"] else session
                for session, last in zip(sessions, lasts, strict=True)
            ]
        )

    def _find_unguided(self, sessions: Sequence[LoggedSession]) -> dict[tuple[Any, ...], LoggedSession]:
        wanted = {_name_task(session.rows[-1]) for session in sessions if session.rows[-1]["guided"]}
        unguided: dict[tuple[Any, ...], LoggedSession] = {}
        for session in sessions:
            task = _name_task(session.rows[-1])
            if task in wanted and not session.rows[-1]["guided"]:
                unguided.setdefault(task, session)
        return unguided

    def _find_prompts(self) -> dict[tuple[Any, ...], list[int]]:
        all_tokens = super().tokens([session.own_rows[0] for session in self._unguided.values()])
        return {
            task: tokens["prompt_ids"]
            for task, tokens in zip(self._unguided, all_tokens, strict=True)
            if tokens is not None
        }

    def _is_usable(self, session: LoggedSession) -> bool:
        last = session.rows[-1]
        return not last["guided"] or (len(session.rows) == 1 and _name_task(last) in self._prompts)


def _name_task(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["env"], row["data_source"], row["task_id"] or row["uid"]
