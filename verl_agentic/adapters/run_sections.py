"""The sections of a run that this package reads, each with the one function that reads it.

Adapters read their section by calling its function. The guard calls all of them in the driver before Ray starts, and
`verl-agentic preflight` reports what each of them refuses. So no section can be parsed at one place and forgotten at
another: a new section is a new function here.

A function takes verl's configuration, or the part of it that `of` names, and imports what it needs itself: this module
is loaded in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import ConfigTypeError

from verl_agentic.adapters.config_access import plain, plain_section
from verl_agentic.errors import AgenticError, ConfigError
from verl_agentic.settings import check_keys, check_value, read_settings

if TYPE_CHECKING:
    from verl_agentic.agent_loops.attempt.circuit_breaker import CircuitBreaker
    from verl_agentic.agent_loops.loop_settings import Audit, LoopSettings
    from verl_agentic.algorithms.batch_metrics.prompt_information import PromptInformationSettings
    from verl_agentic.algorithms.estimate import CreditSettings
    from verl_agentic.algorithms.losses.implicit_reward import ImplicitRewardSettings
    from verl_agentic.algorithms.losses.length_lr import LengthLrSettings
    from verl_agentic.diagnostics.health.monitor import HealthSettings
    from verl_agentic.diagnostics.live.stuck_episodes import WaitingOptions
    from verl_agentic.inference.scheduler import EngineConfig
    from verl_agentic.rewards.rubric import Rubric
    from verl_agentic.sampling.curriculum import CurriculumSettings
    from verl_agentic.trajectory_log.log_options import LogOptions

F = TypeVar("F", bound=Callable[..., Any])
_ROLLOUT = "actor_rollout_ref.rollout"
AGENTIC = f"{_ROLLOUT}.custom.agentic"
_LOSS = "actor_rollout_ref.actor.policy_loss"
_SAMPLER = "trainer.v1.sampler"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section, or a key, of a configuration."""

    path: str
    of: str
    """The part of the configuration that its function takes; empty for all of it."""
    read: Callable[..., Any]

    def read_from(self, config: Any) -> Any:
        """Returns what the run makes of it; None where it is not set.

        Raises:
            AgenticError: what the run would raise.
        """
        try:
            if OmegaConf.select(config, self.path) is None:
                return None
        except ConfigTypeError:  # a list where the section around it should be, which its own reader refuses
            return None
        return self.read(OmegaConf.select(config, self.of) if self.of else config)


SECTIONS: dict[str, Section] = {}
"""By path, outer sections first."""


def section(path: str, *, of: str = "") -> Callable[[F], F]:
    """Registers the function that reads a section."""

    def register(function: F) -> F:
        assert path not in SECTIONS, path
        SECTIONS[path] = Section(path=path, of=of, read=function)
        return function

    return register


def refused_sections(config: Any) -> Iterator[AgenticError]:
    """Yields what the readers of all sections raise; what an outer section refuses is not repeated by an inner one."""
    known: list[str] = []
    for one in SECTIONS.values():
        try:
            one.read_from(config)
        except AgenticError as refused:
            if str(refused) not in known:
                known.append(str(refused))
                yield refused


@section(AGENTIC)
def loop_settings(config: Any, named: Mapping[str, Any] | None = None) -> LoopSettings:
    """Returns the settings of episodes; `named` are those of an entry of `agent_loop_config_path`, which go first.

    Raises:
        ConfigError: the section cannot work, or not with this rollout.
    """
    from verl_agentic.agent_loops.loop_settings import LoopSettings

    rollout = OmegaConf.select(config, _ROLLOUT)
    written = plain_section(config, AGENTIC)
    prompt, response = (rollout.get(f"{part}_length") or 1 for part in ("prompt", "response"))
    settings = LoopSettings.from_mapping(
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


@section(f"{AGENTIC}.log")
def log_options(config: Any) -> LogOptions:
    """Returns where a run is logged."""
    from verl_agentic.trajectory_log.log_options import LogOptions

    return LogOptions.from_mapping(plain_section(config, f"{AGENTIC}.log"), section=f"{AGENTIC}.log")


@section(f"{AGENTIC}.audit")
def audit(config: Any) -> Audit:
    """Returns what happens to a row whose tokens, mask and text do not fit together."""
    from verl_agentic.agent_loops.loop_settings import to_audit

    return to_audit(plain_section(config, f"{AGENTIC}.audit"), section=AGENTIC)


@section(f"{AGENTIC}.health")
def health_settings(config: Any) -> HealthSettings:
    """Returns what alarms look at, and what they do.

    Raises:
        ConfigError: an unknown key, alarm or option, or `rollback` where a run cannot go back.
    """
    from verl_agentic.diagnostics.health.monitor import HealthSettings

    settings = HealthSettings.from_mapping(plain_section(config, f"{AGENTIC}.health"), section=f"{AGENTIC}.health")
    whole: Any = OmegaConf.to_container(config, resolve=False)
    settings.check_trainer(whole)
    return settings


@section(f"{AGENTIC}.waiting")
def waiting_options(config: Any) -> WaitingOptions:
    """Returns when an episode, or the trainer, has waited for too long."""
    from verl_agentic.diagnostics.live.stuck_episodes import WaitingOptions

    return WaitingOptions.from_mapping(plain_section(config, f"{AGENTIC}.waiting"), section=f"{AGENTIC}.waiting")


@section(f"{AGENTIC}.max_void_share")
def circuit_breaker(config: Any) -> CircuitBreaker:
    """Returns what stops a run whose episodes are void."""
    from verl_agentic.agent_loops.attempt.circuit_breaker import CircuitBreaker

    share = plain_section(config, f"{AGENTIC}.max_void_share")
    if share is None:
        return CircuitBreaker()
    check_value(share, float, name=f"{AGENTIC}.max_void_share")
    return CircuitBreaker(max_void_share=share)


@section(f"{AGENTIC}.external_sessions")
def external_sessions(config: Any) -> None:
    """Refuses sessions of a script that cannot be trained on beside those of the policy."""
    from verl_agentic.adapters.rollout.external_sessions import check_external_sessions

    check_external_sessions(config)


@section("data.curriculum", of="data")
def curriculum_settings(data: Any) -> CurriculumSettings | None:
    """Returns the curriculum of the section `data`; None without one.

    Raises:
        ConfigError: the section cannot work, or not with the workers of the data loader.
    """
    from verl_agentic.sampling.curriculum import CurriculumSettings

    if (written := plain(data.get("curriculum"))) is None:
        return None
    settings = CurriculumSettings.from_mapping(written)
    if workers := int(data.get("dataloader_num_workers") or 0):
        raise ConfigError(
            f"data.curriculum needs data.dataloader_num_workers=0, got {workers}: workers fetch prompts two batches "
            "each ahead of time, chosen by what was known then; set it to 0"
        )
    return settings


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


@section("algorithm.credit")
def credit_settings(config: Any) -> CreditSettings:
    """Returns what holds for all estimators, with options that the configured one has.

    Raises:
        ConfigError: the section, or the estimator, cannot work.
    """
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage
    from verl_agentic.algorithms.estimate import CreditSettings

    settings = CreditSettings.from_mapping(plain_section(config, "algorithm.credit"))
    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if is_advantage(name):
        load_advantage(name).check_options(settings.options)
    elif settings.options:
        raise ConfigError(
            f"algorithm.credit.options are for estimators of ours, got {dict(settings.options)} for {name!r}; unset "
            "them"
        )
    return settings


@section("algorithm.implicit_reward")
def implicit_reward(config: Any) -> ImplicitRewardSettings | None:
    """Returns the reward model of token rewards; None without one."""
    from verl_agentic.adapters.trainer.implicit_rewards import check_implicit_reward

    return check_implicit_reward(config)


@section("algorithm.length_lr")
def length_lr(config: Any) -> LengthLrSettings | None:
    """Returns how the learning rate falls with the length of responses; None where it does not."""
    from verl_agentic.algorithms.losses.length_lr import LengthLrSettings

    written = plain_section(config, "algorithm.length_lr")
    return None if written is None else LengthLrSettings.from_mapping(written)


@section("algorithm.prompt_information")
def prompt_information(config: Any) -> PromptInformationSettings | None:
    """Returns how it is measured whether responses depend on their prompts; None where it is not."""
    from verl_agentic.algorithms.batch_metrics.prompt_information import PromptInformationSettings

    written = plain_section(config, "algorithm.prompt_information")
    return None if written is None else PromptInformationSettings.from_mapping(written)


@section("algorithm.self_teacher")
def self_teacher_tau(config: Any) -> float | None:
    """Returns by how much the teacher of the loss sdpo follows the actor; None: it is the actor."""
    from verl_agentic.adapters.trainer.self_teacher import teacher_tau

    return teacher_tau(config)


@section(f"{_LOSS}.options")
def policy_loss_options(config: Any) -> Mapping[str, Any]:
    """Returns the options of the policy loss.

    Raises:
        ConfigError: the loss does not have them.
    """
    from verl_agentic.algorithms.policy_loss import load_policy_loss, policy_loss_names

    written = plain_section(config, f"{_LOSS}.options")
    name = str(OmegaConf.select(config, f"{_LOSS}.loss_mode"))
    if name in policy_loss_names():
        load_policy_loss(name).check_options(written)
    elif written:
        raise ConfigError(f"{_LOSS}.options are for losses of ours, got {written} for {name!r}; unset them")
    return written


@section("critic.categorical")
def categorical(config: Any) -> Mapping[str, Any]:
    """Returns the bins of a critic that classifies returns."""
    from verl_agentic.adapters.engine.critic_config import bins_of

    return bins_of(plain_section(config, "critic.categorical"))


@section("critic.target")
def target_tau(config: Any) -> float:
    """Returns by how much a critic's target network follows it.

    Raises:
        ConfigError: the section cannot work, or nothing uses such a network.
    """
    from verl_agentic.adapters.engine.critic_config import tau_of
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage

    mode = str(OmegaConf.select(config, "trainer.v1.trainer_mode"))
    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if not is_advantage(name) or "target_values_BT" not in load_advantage(name).takes:
        raise ConfigError(
            f"estimator {name!r} has no use for critic.target; set algorithm.adv_estimator=archer, or unset it"
        )
    if not mode.startswith("agentic_"):
        raise ConfigError(
            f"critic.target needs a trainer of ours, got trainer.v1.trainer_mode={mode!r}; set agentic_sync, "
            "agentic_colocate_async or agentic_separate_async"
        )
    return tau_of(plain_section(config, "critic.target"))


@section("reward.rubric", of="reward")
def rubric(reward: Any) -> Rubric | None:
    """Returns the rubric of the section `reward`; None where another reward manager scores."""
    from verl_agentic.rewards.rubric import Rubric

    manager = reward.get("reward_manager") or {}
    return Rubric.from_config(plain(reward)) if manager.get("name") == "rubric" else None


@section(f"{_ROLLOUT}.engine_kwargs.agentic", of=_ROLLOUT)
def engine_config(rollout: Any, *, replica_rank: int = 0) -> EngineConfig:
    """Returns how much an engine of the rollout backend `agentic` may use.

    Args:
        rollout: verl's section `rollout`.
        replica_rank: which of the run's servers it is; they sample differently.

    Raises:
        ConfigError: unknown options, or values of a wrong type.
    """
    from verl_agentic.inference.scheduler import EngineConfig

    name = "rollout.engine_kwargs.agentic"
    known = ("max_cached_tokens", "prefill_tokens", "prefix_reuse")
    options = check_keys(plain((rollout.get("engine_kwargs") or {}).get("agentic")), known, section=name)
    limits = {"max_running": rollout.max_num_seqs, "seed": rollout.seed + replica_rank}
    return read_settings(EngineConfig, {**options, **limits}, section=name)
