"""The options of replay buffers: `trainer.v1.sampler.sampler_kwargs`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from verl_agentic.base.settings import Settings, setting
from verl_agentic.sampling.gate import Gate, to_gates
from verl_agentic.verl.replay_buffer.group_replay import ReplayOptions


class BufferOptions(Settings):
    """Options of every replay buffer."""

    poll_interval_s: float | None = setting(None, above=0, max=60)
    """Seconds between two polls for finished groups. None: 0.05 s with gates, else 2 s as in verl."""


class GateOptions(BufferOptions):
    """Options of a replay buffer with gates."""

    gates: Sequence[Gate] = setting(
        factory=partial(to_gates, ["void_groups", "zero_variance"], name="gates"), read=to_gates
    )
    """Gates in the order in which they judge: names or `{name: ..., option: ...}`. Gates that see all candidates judge
    after gates that see one group. `[]` drops no group. Without this key: `[void_groups, zero_variance]`."""
    keep_surplus: int = setting(0, min=0)
    """Sync trainer only: useful groups beyond the batch are kept for the next step, up to this lag in weight versions.
    0 discards them, as verl does. Their rows keep the log-probs of the weights that sampled them
    (`rollout_log_probs`), and verl recomputes `old_log_probs`: `algorithm.rollout_correction` can weigh them."""
    max_inflight_batches: int = setting(1, min=1)
    """Sync trainer only: batches of prompts that are rolled out at the same time. verl's own filter calls it
    `max_inflight_gen_batches`."""
    cohort: int | None = setting(None, min=1)
    """Number of candidates that gates over all candidates judge together, or fewer at the end. None: a batch."""
    max_generated_groups: int | None = setting(None, min=1)
    """Groups that may be judged for one batch. None: any number."""
    max_drop_rate: float = setting(0.95, above=0, max=1)
    """The run ends with an error above this share of dropped groups. 1 never ends it."""
    window: int = setting(128, min=1)
    """Number of last groups that `max_drop_rate` is computed over; at least two batches."""
    replay: ReplayOptions | None = None
    """Earlier groups replace dropped ones. None: new prompts do."""
