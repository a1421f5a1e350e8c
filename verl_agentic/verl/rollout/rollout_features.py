"""The sections, checks and adapters of episodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.base.settings import read_settings
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.sections import AGENTIC, ROLLOUT, has, plain_section, section

if TYPE_CHECKING:
    from verl_agentic.episode.circuit_breaker import CircuitBreaker
    from verl_agentic.episode.loop_settings import Audit, LoopSettings
    from verl_agentic.log.log_options import LogOptions


@section(AGENTIC)
def loop_settings(config: Any, named: Mapping[str, Any] | None = None) -> LoopSettings:
    """Returns the settings of episodes; `named` are those of an entry of `agent_loop_config_path`, which go first.

    Raises:
        ConfigError: the section cannot work, or not with this rollout.
    """
    from verl_agentic.episode.loop_settings import read_loop_settings

    rollout = OmegaConf.select(config, ROLLOUT)
    raw_settings = plain_section(config, AGENTIC)
    prompt, response = (rollout.get(f"{part}_length") or 1 for part in ("prompt", "response"))
    settings = read_loop_settings(
        {**(raw_settings or {}), **named} if named else raw_settings,
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
    from verl_agentic.episode.circuit_breaker import CircuitBreaker

    return CircuitBreaker(max_void_share=loop_settings(config).max_void_share)


@section(f"{AGENTIC}.log")
def log_options(config: Any) -> LogOptions:
    """Returns the options of the run's log."""
    from verl_agentic.log.log_options import LogOptions

    return read_settings(LogOptions, plain_section(config, f"{AGENTIC}.log"), section=f"{AGENTIC}.log")


@section(f"{AGENTIC}.audit")
def audit(config: Any) -> Audit:
    """Returns the action for a row whose tokens, mask and text do not match."""
    from verl_agentic.episode.loop_settings import to_audit

    return to_audit(plain_section(config, f"{AGENTIC}.audit"), name=f"{AGENTIC}.audit")


@section(f"{AGENTIC}.external_sessions")
def external_sessions(config: Any) -> None:
    """Refuses sessions of a script that cannot be trained on beside those of the policy."""
    from verl_agentic.verl.rollout.external_sessions import check_external_sessions

    check_external_sessions(config)


def truncation_warning(*, top_p: float, top_k: int, uses_rollout_log_probs: bool) -> str | None:
    """Returns a warning if truncated sampling biases importance weights, else None.

    With `top_p` below 1 or a positive `top_k`, a server samples from the most likely tokens and normalises log-probs
    over them (verl's `logprobs_mode: processed_logprobs`). Trainers normalise over the whole vocabulary. So the ratio
    `pi_train / pi_rollout` is too low by the cut mass, which differs per token.

    Args:
        top_p: `rollout.top_p`.
        top_k: `rollout.top_k`; -1 or 0 for none.
        uses_rollout_log_probs: whether a loss corrects by these log-probs (`algorithm.rollout_correction`, its
            `bypass_mode`, replayed rows).
    """
    if not uses_rollout_log_probs or (top_p >= 1 and top_k <= 0):
        return None
    return (
        f"importance weights need samples of the whole distribution, got top_p={top_p} and top_k={top_k}: rollout "
        "log-probs are those of the truncated one; set actor_rollout_ref.rollout.top_p=1.0 and top_k=-1, or switch "
        "algorithm.rollout_correction off"
    )


def warn_of_truncation(config: Any) -> None:
    """Logs that truncated sampling and importance weights of its log-probs do not go together."""
    rollout = OmegaConf.select(config, ROLLOUT) or {}
    correction = OmegaConf.select(config, "algorithm.rollout_correction") or {}
    warning = truncation_warning(
        top_p=float(rollout.get("top_p") or 1.0),
        top_k=int(rollout.get("top_k") or -1),
        uses_rollout_log_probs=any(correction.get(name) for name in ("rollout_is", "rollout_rs", "bypass_mode")),
    )
    if warning is not None:
        logging.getLogger(__name__).warning(warning)


def check_environments(config: Any) -> None:
    """Refuses rows whose environment is not that of the run."""
    from verl_agentic.verl.rollout.row_envs import check_row_envs

    check_row_envs(config)


def is_env_agent(config: Any) -> bool:
    """Tells whether the agent loop of a run is env_agent."""
    custom = OmegaConf.select(config, f"{ROLLOUT}.custom") or {}
    return has(config, f"{ROLLOUT}.agent.default_agent_loop", "env_agent") or "agentic" in custom


def choose_agent_loop(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the agent loop of environments, where verl's default is configured."""
    key = f"{ROLLOUT}.agent.default_agent_loop"
    if has(config, f"{AGENTIC}.env") and has(config, key, "single_turn_agent"):
        yield key, "env_agent", f"{AGENTIC}.env"


def choose_log_folder(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the folder of the log, where none is set: that of the checkpoints. `null` switches the log off."""
    key, folder = f"{AGENTIC}.log.dir", OmegaConf.select(config, "trainer.default_local_dir")
    is_set = "dir" in (OmegaConf.select(config, f"{AGENTIC}.log") or {})
    has_env = has(config, f"{AGENTIC}.env") or has(config, f"{ROLLOUT}.agent.default_agent_loop", "env_agent")
    if has_env and folder and not is_set:
        yield key, folder, "trainer.default_local_dir"


def choose_tokenizer(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields that SGLang loads a tokenizer, which it needs to find stop texts and verl leaves out by default."""
    key = f"{ROLLOUT}.skip_tokenizer_init"
    protocol = OmegaConf.select(config, f"{AGENTIC}.protocol")
    if protocol and has(config, f"{ROLLOUT}.name", "sglang") and has(config, key, True):
        from verl_agentic.episode.protocols.load_protocol import load_protocol

        if load_protocol(protocol).stop:
            yield key, False, f"{AGENTIC}.protocol"


FEATURES = Features(
    choices=(choose_agent_loop, choose_log_folder, choose_tokenizer),
    needs_trainer=(f"{AGENTIC}.guidance",),  # who was guided is a number that verl's own trainers do not pass on
    checks=(warn_of_truncation, check_environments),
    adapters=(
        Adapter(
            module="rollout.agent_loop",
            needs="verl.experimental.agent_loop",
            gives="agent loop env_agent",
            chosen_by=f"{ROLLOUT}.agent.default_agent_loop=env_agent, or agent_name in a row",
            demanded_by=is_env_agent,
        ),
        Adapter(
            module="rollout.stored_together",
            needs="verl.trainer.ppo.v1.agent_loop_tq",
            gives="one call of TransferQueue for the rows of several sessions",
            chosen_by="every run",
        ),
    ),
)
