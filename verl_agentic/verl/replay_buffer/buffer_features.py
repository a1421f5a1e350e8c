"""The options and adapters of replay buffers: `agentic.sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.reward.reward_features import has_rubric
from verl_agentic.verl.sections import has, plain, section

_SAMPLER = "trainer.v1.sampler"
_SECTION = f"{_SAMPLER}.sampler_kwargs"


@section(_SECTION, of=_SAMPLER)
def sampler_options(sampler: Any) -> None:
    """Rejects options that the replay buffer of the section `trainer.v1.sampler` does not support."""
    from verl_agentic.verl.replay_buffer.gate_options import BufferOptions, GateOptions

    options, custom = plain(sampler.sampler_kwargs), sampler.get("custom_sampler") or {}
    if "gated_buffer" in str(custom.get("path")):
        read_settings(GateOptions, options, section=_SECTION)
    elif not custom.get("path"):
        read_settings(BufferOptions, _without_empty_gates(options), section=_SECTION)
    poll_interval_s(options)


def poll_interval_s(sampler_kwargs: Any) -> float | None:
    """Returns the poll interval, in seconds; None: verl's. Raises ConfigError if it is not a number or out of range."""
    from verl_agentic.verl.replay_buffer.gate_options import BufferOptions

    key = "poll_interval_s"
    interval_options = {key: (plain(sampler_kwargs) or {}).get(key)}
    return read_settings(BufferOptions, interval_options, section=_SECTION).poll_interval_s


def choose_buffer(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the replay buffer that options of gates and of replay need."""
    from verl_agentic.verl.replay_buffer.gate_options import BufferOptions, GateOptions

    sampler = OmegaConf.select(config, _SAMPLER) or {}
    options, custom = plain(sampler.get("sampler_kwargs")), sampler.get("custom_sampler") or {}
    options = _without_empty_gates(options)
    gate_keys = {f.name for f in fields(GateOptions)} - {f.name for f in fields(BufferOptions)}
    used_keys = [key for key in options if key in gate_keys] if isinstance(options, Mapping) else []
    if used_keys and not custom.get("path"):
        module = "pkg://verl_agentic.verl.replay_buffer.gated_buffer"
        yield f"{_SAMPLER}.custom_sampler.path", module, f"{_SECTION}.{used_keys[0]}"
        yield f"{_SAMPLER}.custom_sampler.name", "GatedReplayBuffer", f"{_SECTION}.{used_keys[0]}"


def _without_empty_gates(options: Any) -> Any:
    """Returns the options without `gates: []`, which is verl's own buffer unless another option needs ours."""
    if not isinstance(options, Mapping) or options.get("gates") != []:
        return options
    return {key: value for key, value in options.items() if key != "gates"}


def check_filters(config: Any) -> None:
    """Refuses filters of groups that come before what they judge, or beside a second filter. Raises ConfigError."""
    sampler, filters = (
        OmegaConf.select(config, _SAMPLER) or {},
        OmegaConf.select(config, "algorithm.filter_groups.enable"),
    )
    is_gated = "gated_buffer" in str((sampler.get("custom_sampler") or {}).get("path"))
    if is_gated:
        _check_gates(config, plain(sampler.get("sampler_kwargs")), filters=filters)
    if (is_gated or filters) and OmegaConf.select(config, "reward.reward_manager.name") == "rubric":
        from verl_agentic.rewards.rubric import Rubric

        rubric = Rubric.from_config(plain(config.reward))
        late = sorted(term.name for term in rubric.outcomes if term.name in rubric.group_terms)
        if late:
            raise ConfigError(
                f"groups are filtered before components that see them have spoken, got the outcomes {late}; switch "
                "gates and algorithm.filter_groups off, or make them `kind: shaping` beside an outcome"
            )


def _check_gates(config: Any, options: Any, *, filters: Any) -> None:
    from verl_agentic.verl.replay_buffer.gate_options import GateOptions

    if filters:
        raise ConfigError(
            "verl leaves filtering to a custom sampler, got algorithm.filter_groups.enable; switch it off, and name "
            f"what is to be filtered in {_SECTION}.gates (zero_variance does what it did)"
        )
    model = OmegaConf.select(config, "reward.reward_model")
    if model and model.enable and not model.enable_resource_pool:
        raise ConfigError(
            "gates need rewards before a batch is sampled, got a colocated reward model; set "
            "reward.reward_model.enable_resource_pool=true"
        )
    needs = {name for gate in read_settings(GateOptions, options, section=_SECTION).gates for name in gate.type.needs}
    if needs & {"entropy", "ratio"} and not OmegaConf.select(config, "actor_rollout_ref.rollout.calculate_log_probs"):
        raise ConfigError(
            "gates that look at log-probs need those of the rollout, got "
            "actor_rollout_ref.rollout.calculate_log_probs=false; set it to true"
        )


FEATURES = Features(
    places={"sampling": _SECTION},
    choices=(choose_buffer,),
    checks=(check_filters,),
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
