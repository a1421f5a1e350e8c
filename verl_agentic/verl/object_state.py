"""State of the plugin on objects of verl: on trainer, replay buffer and workers, under one attribute of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ATTRIBUTE = "agentic_state"


@dataclass(kw_only=True)
class ObjectState:
    """State of one object. The parts of extensions have no type here, because the core imports none of them."""

    curriculum: Any = None
    """On trainer and replay buffer: the `PromptSampler` that chooses prompts and learns their outcomes."""
    curriculum_parts: list[Any] = field(default_factory=list)
    """On the trainer: parts of methods beside the curriculum."""
    has_complained: bool = False
    """On the replay buffer: whether the curriculum has warned of outcomes that it cannot use."""
    proposals: Any = None
    """On the trainer: the file of new tasks for the curriculum."""
    health_watch: Any = None
    """On the trainer: the monitor of its metrics."""
    handing_out_s: float = 0.0
    """On the trainer: seconds of this step in which prompts were handed out."""
    log_s: dict[str, float] | None = None
    """On the trainer: verl's timer -> its seconds for log and audit in this step."""

    group_rewards: Any = None
    """On the replay buffer: scores whole groups."""
    breaker: Any = None
    """On the replay buffer: stops a run in which most episodes fail."""
    poll_watch: Any = None
    """On the replay buffer: reports waits that are too long."""
    last_rows: tuple[int, Mapping[str, Any]] | None = None
    """On the replay buffer: a step, and key -> `extra_fields` of its episodes' last rows."""
    waits: list[tuple[float, float, list[str]]] = field(default_factory=list)
    """On the replay buffer: start and end of the waits of this step, and keys of last rows."""
    is_waiting: bool = False

    scorer: Any = None
    """On an agent loop worker: scores its rows by the rubric."""
    env_id: str | None = None
    """On an agent loop worker: the environment of the config."""
    log_options: Any = None
    """On an agent loop worker: options of the trajectory log."""


def state_of(part: Any) -> ObjectState:
    """Returns the state on an object of verl; makes it on the first call."""
    return vars(part).setdefault(ATTRIBUTE, ObjectState())
