"""The options and adapters of replay buffers: `agentic.sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.adapters.features import Adapter, Features
from verl_agentic.adapters.reward.reward_features import has_rubric
from verl_agentic.adapters.sections import has, plain, section
from verl_agentic.settings import read_settings

_SAMPLER = "trainer.v1.sampler"
_SECTION = f"{_SAMPLER}.sampler_kwargs"


@section(_SECTION, of=_SAMPLER)
def sampler_options(sampler: Any) -> None:
    """Rejects options that the replay buffer of the section `trainer.v1.sampler` does not support."""
    from verl_agentic.adapters.replay_buffer.gate_options import BufferOptions, GateOptions

    written, custom = plain(sampler.sampler_kwargs), sampler.get("custom_sampler") or {}
    if "gated_buffer" in str(custom.get("path")):
        read_settings(GateOptions, written, section=_SECTION)
    elif not custom.get("path"):
        read_settings(BufferOptions, _without_empty_gates(written), section=_SECTION)
    poll_interval_s(written)


def poll_interval_s(written: Any) -> float | None:
    """Returns the poll interval, in seconds; None: verl's. Raises ConfigError if it is not a number or out of range."""
    from verl_agentic.adapters.replay_buffer.gate_options import BufferOptions

    key = "poll_interval_s"
    given = {key: (plain(written) or {}).get(key)}
    return read_settings(BufferOptions, given, section=_SECTION).poll_interval_s


def choose_buffer(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the replay buffer that options of gates and of replay need."""
    from verl_agentic.adapters.replay_buffer.gate_options import BufferOptions, GateOptions

    sampler = OmegaConf.select(config, _SAMPLER) or {}
    written, custom = plain(sampler.get("sampler_kwargs")), sampler.get("custom_sampler") or {}
    written = _without_empty_gates(written)
    known = {f.name for f in fields(GateOptions)} - {f.name for f in fields(BufferOptions)}
    given = [key for key in written if key in known] if isinstance(written, Mapping) else []
    if given and not custom.get("path"):
        module = "pkg://verl_agentic.adapters.replay_buffer.gated_buffer"
        yield f"{_SAMPLER}.custom_sampler.path", module, f"{_SECTION}.{given[0]}"
        yield f"{_SAMPLER}.custom_sampler.name", "GatedReplayBuffer", f"{_SECTION}.{given[0]}"


def _without_empty_gates(written: Any) -> Any:
    """Returns the options without `gates: []`, which is verl's own buffer unless another option needs ours."""
    if not isinstance(written, Mapping) or written.get("gates") != []:
        return written
    return {key: value for key, value in written.items() if key != "gates"}


FEATURES = Features(
    places={"sampling": _SECTION},
    choices=(choose_buffer,),
    adapters=(
        Adapter(
            module="replay_buffer.episode_buffer",
            needs="verl.trainer.ppo.v1.replay_buffer",
            gives="poll interval, rows ordered by group, and metrics episode/*",
            chosen_by="agentic.sampling.poll_interval_s",
            demanded_by=lambda config: has_rubric(config) or has(config, f"{_SECTION}.poll_interval_s"),
            behind=("reward.group_rewards",),  # its metrics hold the scores of groups
        ),
    ),
)
