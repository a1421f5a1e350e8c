"""The plugin: the list of adapters, and what became of them.

verl imports this module, by `entry_point`, at the end of `import verl`, in the driver and in every Ray worker. An
adapter is imported as soon as the module of verl that it changes has been imported, so that a process pays only for
what it uses and the order is right: the platform first, then what is looked up by name, then who binds those names.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from verl_agentic.errors import PluginError

SUPPORTED_VERL = ">=0.9.1,<0.10"
_PLUGIN = "plugin"
"""Its name among the failures: then no adapter works."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One module of `verl_agentic.adapters`."""

    module: str
    needs: str
    """The module of verl after whose import this one is imported."""
    gives: str
    """What it registers or changes."""
    chosen_by: str
    """The configuration that uses it."""


ADAPTERS = (
    Adapter(
        module="monitoring.error_log",
        needs="verl.utils.device",
        gives="the first errors of every process, told last",
        chosen_by="actor_rollout_ref.rollout.custom.agentic.log.dir",
    ),
    Adapter(
        module="cpu.platform",
        needs="verl.plugin.platform",
        gives="platform cpu",
        chosen_by="environment variable VERL_PLATFORM=cpu",
    ),
    Adapter(
        module="cpu.console", needs="verl.plugin.platform", gives="a readable console", chosen_by="VERL_PLATFORM=cpu"
    ),
    Adapter(
        module="cpu.warm_workers",
        needs="verl.utils.device",
        gives="Ray workers that start in a moment",
        chosen_by="VERL_PLATFORM=cpu, on Linux; VERL_AGENTIC_WARM_WORKERS=0 turns it off",
    ),
    Adapter(
        module="cpu.distributed",
        needs="verl.utils.distributed",
        gives="process groups over gloo",
        chosen_by="VERL_PLATFORM=cpu",
    ),
    Adapter(
        module="cpu.value_head",
        needs="verl.utils.model",
        gives="critic without flash-attention",
        chosen_by="VERL_PLATFORM=cpu and critic.enable",
    ),
    Adapter(
        module="cpu.cpu_log_probs",
        needs="verl.utils.torch_functional",
        gives="log-probs in large pieces",
        chosen_by="VERL_PLATFORM=cpu",
    ),
    Adapter(
        module="cpu.cpu_engine",
        needs="verl.workers.engine",
        gives="FSDP2 engines for device cpu",
        chosen_by="VERL_PLATFORM=cpu and actor.strategy=fsdp2",
    ),
    Adapter(
        module="server.register",
        needs="verl.workers.rollout.replica",
        gives="rollout backend agentic",
        chosen_by="actor_rollout_ref.rollout.name=agentic",
    ),
    Adapter(
        module="rollout.agent_loop",
        needs="verl.experimental.agent_loop",
        gives="agent loop env_agent",
        chosen_by="actor_rollout_ref.rollout.agent.default_agent_loop=env_agent, or agent_name in a row",
    ),
    Adapter(
        module="monitoring.episode_waits",  # around `rollout.agent_loop`
        needs="verl.experimental.agent_loop",
        gives="what episodes wait for, and their timelines",
        chosen_by="always; actor_rollout_ref.rollout.custom.agentic.waiting",
    ),
    Adapter(
        module="server.checkpoint_engine",
        needs="verl.checkpoint_engine.base",
        gives="checkpoint engine object_store",
        chosen_by="actor_rollout_ref.rollout.checkpoint_engine.backend=object_store",
    ),
    Adapter(
        module="trainer.shuffled_rewards",
        needs="verl.trainer.ppo.core_algos",
        gives="estimator grpo_shuffled (a control)",
        chosen_by="algorithm.adv_estimator=grpo_shuffled",
    ),
    Adapter(
        module="engine.loss_config",
        needs="verl.workers.config.actor",
        gives="options of policy losses",
        chosen_by="actor_rollout_ref.actor.policy_loss.options",
    ),
    Adapter(
        module="engine.loss_functions",
        needs="verl.workers.utils.losses",
        gives="policy losses",
        chosen_by="actor_rollout_ref.actor.policy_loss.loss_mode",
    ),
    Adapter(
        module="engine.mean_log_prob",
        needs="verl.workers.engine.fsdp.transformer_impl",
        gives="mean log-prob over the vocabulary",
        chosen_by="actor_rollout_ref.actor.policy_loss.loss_mode=rover",
    ),
    Adapter(
        module="engine.critic_config",
        needs="verl.workers.config.critic",
        gives="bins of categorical critics, target networks",
        chosen_by="critic.categorical, critic.target",
    ),
    Adapter(
        module="engine.categorical_critic",
        needs="verl.workers.engine.fsdp.transformer_impl",
        gives="critics that classify returns",
        chosen_by="critic.categorical",
    ),
    Adapter(
        module="engine.target_critic",
        needs="verl.workers.engine.fsdp.transformer_impl",
        gives="a target network beside the critic",
        chosen_by="critic.target",
    ),
    # Behind that of critics, whose engine inherits what this one changes.
    Adapter(
        module="engine.ema_teacher",
        needs="verl.workers.engine.fsdp.transformer_impl",
        gives="a teacher that follows the actor slowly",
        chosen_by="algorithm.self_teacher",
    ),
    Adapter(
        module="engine.learning_rate",
        needs="verl.workers.engine.fsdp.transformer_impl",
        gives="a learning rate that falls with the length of responses",
        chosen_by="algorithm.length_lr.reference_tokens",
    ),
    Adapter(
        module="engine.reference_model",
        needs="verl.workers.engine_workers",
        gives="a reference with a model of its own",
        chosen_by="algorithm.implicit_reward",
    ),
    Adapter(
        module="trainer.advantages",
        needs="verl.trainer.ppo.v1.trainer_base",
        gives="advantage estimators, and group safety for verl's",
        chosen_by="algorithm.adv_estimator, algorithm.credit",
    ),
    Adapter(
        module="trainer.trainers",
        needs="verl.trainer.ppo.v1",
        gives="trainers that tell estimators and losses what verl's drop",
        chosen_by="trainer.v1.trainer_mode=agentic_sync | agentic_colocate_async | agentic_separate_async",
    ),
    Adapter(
        module="reward.rubric_manager",
        needs="verl.experimental.reward_loop.reward_manager",
        gives="reward manager rubric",
        chosen_by="reward.reward_manager.name=rubric, reward.rubric",
    ),
    Adapter(
        module="reward.verl_scores",  # behind `rollout.agent_loop`, whose rows it makes
        needs="verl.experimental.agent_loop",
        gives="rubrics and reward functions for rows of other agent loops",
        chosen_by="reward.reward_manager.name=rubric, or reward.custom_reward_function.path=pkg://verl_agentic.rewards.*",
    ),
    Adapter(
        module="reward.group_rewards",  # ahead of `replay_buffer.episode_buffer`, whose metrics tell the scores
        needs="verl.trainer.ppo.v1.replay_buffer",
        gives="reward components that see whole groups",
        chosen_by="reward.rubric",
    ),
    Adapter(
        module="replay_buffer.episode_buffer",
        needs="verl.trainer.ppo.v1.replay_buffer",
        gives="poll interval and metrics episode/*",
        chosen_by="trainer.v1.sampler.sampler_kwargs.poll_interval_s",
    ),
    Adapter(
        module="trainer.prompt_order",
        needs="verl.trainer.ppo.v1.trainer_base",
        gives="curricula, group sizes, growing task sets",
        chosen_by="data.curriculum",
    ),
    Adapter(
        module="checkpoints.checkpoint_retention",
        needs="verl.utils.checkpoint.checkpoint_manager",
        gives="healthy checkpoints that stay",
        chosen_by="actor_rollout_ref.rollout.custom.agentic.health.actions (stop, rollback)",
    ),
    Adapter(
        module="monitoring.step_time",  # ahead of `monitoring.trainer_log`, which writes and watches all metrics
        needs="verl.trainer.ppo.v1.trainer_base",
        gives="metrics time/*, tool_time/*, turn_time/*",
        chosen_by="always",
    ),
    Adapter(
        module="monitoring.trainer_log",
        needs="verl.trainer.ppo.v1.trainer_base",
        gives="trajectory log, audit and health of a run",
        chosen_by="actor_rollout_ref.rollout.custom.agentic.{log, audit, health}",
    ),
    Adapter(
        module="monitoring.trainer_waits",
        needs="verl.trainer.ppo.v1.trainer_base",
        gives="what the trainer waits for, when it is stuck",
        chosen_by="always; actor_rollout_ref.rollout.custom.agentic.waiting",
    ),
    Adapter(
        module="trainer.schedules",
        needs="verl.trainer.ppo.v1.trainer_base",
        gives="temperature schedule and circuit breaker",
        chosen_by="actor_rollout_ref.rollout.custom.agentic.{temperature_schedule, max_void_share}",
    ),
)


@dataclass
class PluginState:
    """Lists the adapters that this process has loaded, and those that failed."""

    verl: str = ""
    loaded: list[str] = field(default_factory=list)
    """Adapters that have been imported; the others wait for their module of verl."""
    failed: dict[str, str] = field(default_factory=dict)
    """Adapter, `guard`, or `plugin` for all of them -> the exception."""


_state = PluginState()


def state() -> PluginState:
    """Returns what has been loaded in this process, and what failed."""
    return _state


def check(*adapters: str) -> None:
    """Raises when one of the named adapters, or the plugin itself, has failed in this process; of all, without names.

    Raises:
        PluginError: with the cause of every failure.
    """
    failed = {name: cause for name, cause in _state.failed.items() if not adapters or name in (_PLUGIN, *adapters)}
    if failed:
        causes = "; ".join(f"{name}: {cause}" for name, cause in failed.items())
        raise PluginError(f"the verl_agentic plugin did not load completely, got {causes}; run `verl-agentic doctor`")


def load(adapter: Adapter) -> None:
    """Imports an adapter now; a failure is printed once and kept."""
    name = adapter.module
    if name in _state.loaded or name in _state.failed:
        return
    try:
        importlib.import_module(f"verl_agentic.adapters.{name}")
        _state.loaded.append(name)
    except Exception as cause:
        importlib.import_module("verl_agentic.adapters.patching").undo_failed()
        _fail(name, cause)


def load_demanded(names: list[str]) -> None:
    """Imports the named adapters now; nothing happens without names.

    Raises:
        PluginError: one of them, or the plugin itself, has failed.
    """
    if not names:
        return
    check(_PLUGIN)
    for adapter in ADAPTERS:
        if adapter.module in names:
            load(adapter)
    check(*names)


def _register() -> None:
    guard = importlib.import_module("verl_agentic.adapters.guard")
    hooks = importlib.import_module("verl_agentic.adapters.import_hooks")
    # Before the version is looked at: a run that asks for us must stop with any verl.
    guard.install_resolver(check)
    hooks.when_imported("verl.utils.device", functools.partial(_install_guard, guard))
    _state.verl = _verl_version()
    _check_version(_state.verl)
    for adapter in ADAPTERS:
        hooks.when_imported(adapter.needs, functools.partial(load, adapter))


def _install_guard(guard: ModuleType) -> None:
    try:
        guard.install_check(load_demanded)
    except Exception as cause:
        _fail("guard", cause)


def _verl_version() -> str:
    """Returns the version of the code that is imported, which need not be that of the installed distribution."""
    try:
        return getattr(sys.modules.get("verl"), "__version__", "") or version("verl")
    except PackageNotFoundError:
        return "none"


def _check_version(found: str) -> None:
    try:
        is_supported = SpecifierSet(SUPPORTED_VERL).contains(found, prereleases=True)
    except InvalidVersion:
        is_supported = False
    if not is_supported:
        raise PluginError(
            f"verl_agentic works with verl {SUPPORTED_VERL}, got verl {found}; pip install 'verl{SUPPORTED_VERL}'"
        )


def _fail(name: str, cause: BaseException) -> None:
    # Not above: that module imports this one.
    from verl_agentic.entry_point import report

    _state.failed[name] = f"{type(cause).__name__}: {cause}"
    report("the plugin" if name == _PLUGIN else f"adapters.{name}", cause)


try:
    _register()
except Exception as error:  # verl would hide it at DEBUG
    _fail(_PLUGIN, error)
