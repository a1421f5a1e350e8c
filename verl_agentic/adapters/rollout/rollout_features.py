"""The sections of episodes: `rollout.custom.agentic`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.adapters.sections import AGENTIC, ROLLOUT, plain_section, section

if TYPE_CHECKING:
    from verl_agentic.agent_loops.attempt.circuit_breaker import CircuitBreaker
    from verl_agentic.agent_loops.loop_settings import LoopSettings


@section(AGENTIC)
def loop_settings(config: Any, named: Mapping[str, Any] | None = None) -> LoopSettings:
    """Returns the settings of episodes; `named` are those of an entry of `agent_loop_config_path`, which go first.

    Raises:
        ConfigError: the section cannot work, or not with this rollout.
    """
    from verl_agentic.agent_loops.loop_settings import read_loop_settings

    rollout = OmegaConf.select(config, ROLLOUT)
    written = plain_section(config, AGENTIC)
    prompt, response = (rollout.get(f"{part}_length") or 1 for part in ("prompt", "response"))
    settings = read_loop_settings(
        {**(written or {}), **named} if named else written,
        section=AGENTIC,
        max_response_tokens=response,
        max_context_tokens=prompt + response,
    )
    if settings.branching is not None:
        settings.branching.check_rollout(
            group_size=(rollout.get("n") or 1) - settings.external_sessions,
            has_log_probs=bool(rollout.get("calculate_log_probs")),
        )
    return settings


@section(f"{AGENTIC}.max_void_share")
def circuit_breaker(config: Any) -> CircuitBreaker:
    """Returns what stops a run whose episodes are void."""
    from verl_agentic.agent_loops.attempt.circuit_breaker import CircuitBreaker

    return CircuitBreaker(max_void_share=loop_settings(config).max_void_share)


@section(f"{AGENTIC}.external_sessions")
def external_sessions(config: Any) -> None:
    """Refuses sessions of a script that cannot be trained on beside those of the policy."""
    from verl_agentic.adapters.rollout.external_sessions import check_external_sessions

    check_external_sessions(config)
