"""The token-level record of an episode: ids, mask, log-probs and turn ids, kept aligned by construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from verl_agentic.base.types import Segment, SegmentKind

_COLUMNS = ("response_ids", "response_mask", "log_probs", "turn_ids")


def place_rewards(
    *, outcome: float, turn_rewards: Mapping[int, float], turn_ids: Sequence[int], response_mask: Sequence[int]
) -> list[float]:
    """Returns `[R]` rewards that lie on sampled tokens only; their sum is the whole reward.

    Args:
        outcome: goes to the last sampled token.
        turn_rewards: turn -> reward, to the last sampled token of that turn (of the nearest earlier turn when that turn
            has none).
        turn_ids: `[R]` turn of every token.
        response_mask: `[R]` 1 on tokens that the policy sampled.
    """
    rewards = [0.0] * len(turn_ids)
    if 1 not in response_mask:
        return rewards
    if turn_rewards:
        last_of_turn = {t: i for i, (t, m) in enumerate(zip(turn_ids, response_mask, strict=True)) if m}
        for turn, value in turn_rewards.items():
            home = max((t for t in last_of_turn if t <= turn), default=min(last_of_turn))
            rewards[last_of_turn[home]] += value
    rewards[len(response_mask) - 1 - list(reversed(response_mask)).index(1)] += outcome
    return rewards


def find_trained_observation(mask: list[int] | bytes, segments: Iterable[Segment]) -> str:
    """Describes the first tokens with mask 1 that the policy did not sample; empty without any."""
    for start, end, kind, turn in segments:
        if kind != SegmentKind.MODEL and 1 in mask[start:end]:
            first = mask.index(1, start, end)
            last = next((place for place in range(first, end) if mask[place] != 1), end)
            author = SegmentKind(kind).value
            return (
                f"tokens {first} to {last} of the response ({author}, turn {turn}) have mask 1, and the policy did not "
                "sample them"
            )
    return ""


@dataclass(kw_only=True)
class Trajectory:
    """One training row: a prompt, and a response in which sampled tokens and observations alternate.

    Tokens enter through `append_sampled` and `append_context` only, so `response_mask` is 1 exactly on the
    tokens that the policy sampled, and the ids that are trained on are the ids that were sampled. A protocol may keep
    sampled tokens out of the loss; their mask is 0 too.
    """

    prompt_ids: list[int]
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """Log-probs of the sampled tokens, 0.0 on all others."""
    turn_ids: list[int] = field(default_factory=list)
    """Turn of every response token; an observation belongs to the turn it answers."""
    agent: str = ""
    """Role of the agent that wrote the row; empty for the agent of the episode."""
    has_log_probs: bool = True
    """False when the policy gave none for some turn; `log_probs` then means nothing."""
    _segments: list[Segment] = field(default_factory=list)
    """Spans of one author and turn, in order and without gaps."""

    @property
    def token_ids(self) -> list[int]:
        """Prompt and response, the stream that the policy has seen."""
        return self.prompt_ids + self.response_ids

    @property
    def num_model_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.response_mask)

    def append_sampled(
        self,
        token_ids: Sequence[int],
        log_probs: Sequence[float] | None,
        *,
        turn: int,
        untrained: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Appends what the policy sampled in `turn`: mask 1.

        Args:
            token_ids: the ids as sampled, stop token included when it was sampled.
            log_probs: one per token, or None when the policy does not give them.
            turn: index of the turn, from 0, never falling.
            untrained: `[start, end)` offsets in `token_ids` of what stays out of the loss.
        """
        assert log_probs is None or len(log_probs) == len(token_ids), (len(token_ids), log_probs)
        self.has_log_probs &= log_probs is not None
        mask, log_probs = [1] * len(token_ids), list(log_probs or [0.0] * len(token_ids))
        for start, end in untrained:
            mask[start:end] = [0] * (end - start)
            log_probs[start:end] = [0.0] * (end - start)
        self._append_tokens(token_ids, mask=mask, log_probs=log_probs, turn=turn, kind=SegmentKind.MODEL)

    def append_context(self, token_ids: Sequence[int], *, turn: int, kind: SegmentKind = SegmentKind.TOOL) -> None:
        """Appends tokens that the policy did not sample (observations, separators, forced text): mask 0."""
        nothing = [0] * len(token_ids)
        self._append_tokens(token_ids, mask=nothing, log_probs=[0.0] * len(token_ids), turn=turn, kind=kind)

    def prefix(self, length: int) -> Trajectory:
        """Returns a copy of the row that ends after `length` response tokens."""
        columns = {name: list(getattr(self, name)) for name in (*_COLUMNS, "prompt_ids", "_segments")}
        row = replace(self, **columns)
        row.drop_tail(len(self.response_ids) - length)
        return row

    def drop_tail(self, count: int) -> None:
        """Removes the last `count` response tokens (a chat template may own the separator that ended a turn)."""
        assert 0 <= count <= len(self.response_ids), (count, len(self.response_ids))
        if not count:
            return
        keep = len(self.response_ids) - count
        for name in _COLUMNS:
            del getattr(self, name)[keep:]
        while self._segments and self._segments[-1].end > keep:
            last = self._segments.pop()
            if last.start < keep:
                self._segments.append(last._replace(end=keep))

    def trim_context(self) -> None:
        """Removes trailing tokens that the policy did not sample, so that the last token is trainable."""
        tail = 0
        while tail < len(self.response_mask) and not self.response_mask[-1 - tail]:
            tail += 1
        self.drop_tail(tail)

    def void(self, *, filler_id: int) -> None:
        """Takes the row out of the loss: mask 0 everywhere, and at least one token of each part, as trainers need."""
        if not self.prompt_ids:
            self.prompt_ids = [filler_id]
        if not self.response_ids:
            self.append_context([filler_id], turn=0, kind=SegmentKind.FRAMEWORK)
        self.response_mask = [0] * len(self.response_ids)

    def segments(self) -> tuple[Segment, ...]:
        """Returns the spans of one author and turn, in order and without gaps."""
        return tuple(self._segments)

    @property
    def kinds(self) -> list[SegmentKind]:
        """Author of every response token."""
        return [segment.kind for segment in self._segments for _ in range(segment.start, segment.end)]

    def token_rewards(self, *, outcome: float, turn_rewards: Mapping[int, float]) -> list[float]:
        """Returns `[R]` rewards that lie on sampled tokens only; their sum is the whole reward; see `place_rewards`."""
        return place_rewards(
            outcome=outcome, turn_rewards=turn_rewards, turn_ids=self.turn_ids, response_mask=self.response_mask
        )

    def check(self) -> None:
        """Asserts the record's invariants: aligned columns, turns in order, no log-prob on an observation."""
        assert len({len(getattr(self, name)) for name in _COLUMNS}) == 1, "columns are not aligned"
        assert set(self.response_mask) <= {0, 1}, "mask values other than 0 and 1"
        assert self.turn_ids == sorted(self.turn_ids), "turn ids fall"
        start = 0
        for segment in self._segments:
            assert segment.start == start < segment.end, "segments leave gaps"
            start = segment.end
        assert not (fault := find_trained_observation(self.response_mask, self._segments)), fault
        assert start == len(self.response_ids), "segments leave gaps"

    def _append_tokens(
        self, token_ids: Sequence[int], *, mask: list[int], log_probs: Sequence[float], turn: int, kind: SegmentKind
    ) -> None:
        assert not self.turn_ids or turn >= self.turn_ids[-1], f"turn {turn} after turn {self.turn_ids[-1]}"
        if not token_ids:
            return
        start = len(self.response_ids)
        self.response_ids.extend(token_ids)
        self.response_mask.extend(mask)
        self.log_probs.extend(log_probs)
        self.turn_ids.extend([turn] * len(token_ids))
        last = self._segments[-1] if self._segments else None
        if last is not None and (last.kind, last.turn) == (kind, turn):
            start = self._segments.pop().start
        self._segments.append(Segment(start, len(self.response_ids), kind, turn))
