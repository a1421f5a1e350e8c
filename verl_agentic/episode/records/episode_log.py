"""The log records of an episode: collected row by row, written when the score is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.episode.records.counted_signs import signs_in
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.trace import timeline as activity
from verl_agentic.episode.trace.timeline import Span
from verl_agentic.log.secrets import Decode, own_secrets, withhold
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import to_columns

Append = Callable[[Callable[[], Sequence[Mapping[str, Any]]]], None]


@dataclass(frozen=True, kw_only=True)
class EpisodeHeader:
    """Log columns of an episode that are known before it starts."""

    columns: Mapping[str, Any]
    """`uid`, `session`, `step`, `split`, `role`, `loop`, `env`, `temperature`, `seed`; `weights_min`, `weights_max` and
    `task_id` as defaults if the policy and the row have none."""
    append: Append
    """Receives the function that makes the records."""
    decode: Decode
    """Token ids to text, special tokens included."""


@dataclass(kw_only=True)
class EpisodeLog:
    """The records of one episode."""

    header: EpisodeHeader
    episode: Episode
    row: EnvRow
    breach: str = ""
    sample: Sample | None = None
    """The episode's sample, if it exists already."""
    _rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, index: int, *, mask: Any, rewards: Sequence[float], void: str | None) -> None:
        """Adds a training row as verl stores it.

        Args:
            mask: `[R]` 0 or 1, an array.
            rewards: `[R]` token rewards.
            void: the scorer's reason for voiding the episode, or None.
        """
        self._rows.append({"index": index, "response_mask": mask, "token_rewards": rewards, "void": void})

    def finish(self, *, numbers: Mapping[str, float], score: Mapping[str, float] | None, acc: float | None) -> None:
        """Writes the records after all rows have been added.

        Args:
            score: reward by part; None: unknown yet.
            acc: raw outcome; None: unknown yet.
        """
        ended = time.time()
        numbers, score = dict(numbers), None if score is None else dict(score)
        timeline = activity.current()  # which includes the scoring
        spans = self.episode.spans if timeline is None else timeline.spans
        self.header.append(lambda: self._make_records(ended, numbers, score, acc, spans))

    def _make_records(
        self,
        ended: float,
        numbers: Mapping[str, float],
        score: Mapping[str, float] | None,
        acc: float | None,
        spans: Sequence[Span],
    ) -> list[dict[str, Any]]:
        shared = {**self.header.columns, **self._of_episode(), "time": ended, "numbers": numbers, "acc": acc}
        shared["hacking"] = signs_in(numbers)
        reward = None if score is None else sum(sum(row["token_rewards"]) for row in self._rows)
        void = next((row["void"] for row in self._rows if row["void"] is not None), None)
        if void is not None:
            shared |= {"is_void": True, "error": void}
        records = [{**shared, "reward": reward, **self._of_row(row)} for row in self._rows]
        sample = self.sample or to_sample(self.episode, self.row, id=self._sample_id())
        span_columns = [span._asdict() for span in spans]
        records[-1] |= {**to_columns(sample), "score": score, "spans": span_columns}
        records[-1]["traceback"] = self.episode.traceback
        return records

    def _of_episode(self) -> dict[str, Any]:
        episode = self.episode
        calls = [call for action in episode.actions for call in action.tool_calls]
        versions = {"weights_min": episode.min_weights_version, "weights_max": episode.max_weights_version}
        return {
            **{name: version for name, version in versions.items() if version is not None},
            "task_id": self._sample_id().rpartition("/")[0],
            "data_source": self.row.data_source,
            "stop_reason": episode.stop_reason.value,
            "is_void": episode.is_void,
            "error": episode.error or "",
            "num_turns": len(episode.actions),
            "num_calls": len(calls),
            "num_call_errors": int(episode.info.get("tool_errors", 0)),
            "tools": list(dict.fromkeys(call.name for call in calls)),
            "breach": self.breach,
        }

    def _of_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        index = row["index"]
        trajectory, last = self.episode.trajectories[index], len(self.episode.trajectories) - 1
        segments = trajectory.segments()
        prompt_ids, response_ids = trajectory.prompt_ids, trajectory.response_ids
        if secrets := own_secrets():
            decode = self.header.decode
            prompt_ids = withhold(prompt_ids, [(0, len(prompt_ids))], decode=decode, secrets=secrets)
            spans = [(segment.start, segment.end) for segment in segments]
            response_ids = withhold(response_ids, spans, decode=decode, secrets=secrets)
        return {
            "index": index,
            "place": "side" if index < self.episode.num_side_rows else "last" if index == last else "earlier",
            "agent": trajectory.agent,
            "num_model_tokens": int(row["response_mask"].sum()),
            "num_response_tokens": len(response_ids),
            "prompt_ids": prompt_ids,
            "response_ids": response_ids,
            "response_mask": row["response_mask"].astype("int8"),  # as stored, so that arrow can copy it
            "turn_ids": trajectory.turn_ids,
            "rollout_log_probs": trajectory.log_probs if trajectory.has_log_probs else [],
            "token_rewards": row["token_rewards"],
            "segments": [{"start": s.start, "end": s.end, "kind": s.kind.value, "turn": s.turn} for s in segments],
        }

    def _sample_id(self) -> str:
        columns, extra = self.header.columns, self.row.extra
        name = extra.get("task_id")
        default = columns.get("task_id", extra.get("index", ""))
        return f"{default if name is None else name}/{columns['session']}"
