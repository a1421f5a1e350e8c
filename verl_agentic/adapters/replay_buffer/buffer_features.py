"""The options of replay buffers: `trainer.v1.sampler.sampler_kwargs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.adapters.features import Adapter, Features
from verl_agentic.adapters.reward.reward_features import has_rubric
from verl_agentic.adapters.sections import has, plain, section
from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings

_SAMPLER = "trainer.v1.sampler"
_SECTION = f"{_SAMPLER}.sampler_kwargs"


@section(_SECTION, of=_SAMPLER)
def sampler_options(sampler: Any) -> None:
    """Refuses options that the replay buffer of the section `trainer.v1.sampler` cannot work with, or does not read."""
    from verl_agentic.adapters.replay_buffer.gate_options import BufferOptions, GateOptions

    written, custom = plain(sampler.sampler_kwargs), sampler.get("custom_sampler") or {}
    if "gated_buffer" in str(custom.get("path")):
        read_settings(GateOptions, written, section=_SECTION)
    elif not custom.get("path"):
        if isinstance(written, Mapping) and "gates" in written:
            raise ConfigError(
                f"{_SECTION}.gates are set and verl's own replay buffer does not look at them, got {written['gates']}; "
                f"set {_SAMPLER}.custom_sampler.path=pkg://verl_agentic.adapters.replay_buffer.gated_buffer and "
                "custom_sampler.name=GatedReplayBuffer"
            )
        read_settings(BufferOptions, written, section=_SECTION)
    poll_interval_s(written)


def poll_interval_s(written: Any) -> float | None:
    """Returns the seconds between two looks of a replay buffer, of its `sampler_kwargs`; None: as verl does.

    Raises:
        ConfigError: no number, or out of range.
    """
    from verl_agentic.adapters.replay_buffer.gate_options import BufferOptions

    key = "poll_interval_s"
    given = {key: (plain(written) or {}).get(key)}
    return read_settings(BufferOptions, given, section=_SECTION).poll_interval_s


FEATURES = Features(
    adapters=(
        Adapter(
            module="replay_buffer.episode_buffer",
            needs="verl.trainer.ppo.v1.replay_buffer",
            gives="poll interval and metrics episode/*",
            chosen_by=f"{_SECTION}.poll_interval_s",
            demanded_by=lambda config: has_rubric(config) or has(config, f"{_SECTION}.poll_interval_s"),
            behind=("reward.group_rewards",),  # its metrics hold the scores of groups
        ),
    ),
)
