"""The options of replay buffers: `trainer.v1.sampler.sampler_kwargs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.adapters.sections import plain, section
from verl_agentic.errors import ConfigError
from verl_agentic.settings import check_keys

_SAMPLER = "trainer.v1.sampler"


@section(f"{_SAMPLER}.sampler_kwargs", of=_SAMPLER)
def sampler_options(sampler: Any) -> None:
    """Refuses options that the replay buffer of the section `trainer.v1.sampler` cannot work with, or does not read."""
    written, custom = plain(sampler.sampler_kwargs), sampler.get("custom_sampler") or {}
    if "gated_buffer" in str(custom.get("path")):
        from verl_agentic.adapters.replay_buffer.gated_buffer import GateOptions

        GateOptions.of(written)
    elif not custom.get("path"):
        name = f"{_SAMPLER}.sampler_kwargs"
        if isinstance(written, Mapping) and "gates" in written:
            raise ConfigError(
                f"{name}.gates are set and verl's own replay buffer does not look at them, got {written['gates']}; set "
                f"{_SAMPLER}.custom_sampler.path=pkg://verl_agentic.adapters.replay_buffer.gated_buffer and "
                "custom_sampler.name=GatedReplayBuffer"
            )
        check_keys(written, ["poll_interval_s"], section=name)
    poll_interval_s(written)


def poll_interval_s(written: Any) -> float | None:
    """Returns the seconds between two looks of a replay buffer, of its `sampler_kwargs`; None: as verl does.

    Raises:
        ConfigError: no number, or out of range.
    """
    seconds = (plain(written) or {}).get("poll_interval_s")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 60:
            raise ConfigError(
                f"{_SAMPLER}.sampler_kwargs.poll_interval_s must be above 0 and at most 60, got {seconds!r}; change it"
            )
        return float(seconds)
    return None
