"""The sections, checks and adapters of methods of single papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.verl.extensions.methods.method_sections import count_top_tokens, needs_column
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.sections import has, section

if TYPE_CHECKING:
    from verl_agentic.methods.losses.implicit_reward import ImplicitRewardSettings
    from verl_agentic.sampling.curriculum import CurriculumSettings

_FSDP = "verl.workers.engine.fsdp.transformer_impl"
_LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
_TRAINER = "verl_agentic.verl.extensions.methods.trainer"


@section("algorithm.implicit_reward")
def implicit_reward(config: Any) -> ImplicitRewardSettings | None:
    """Returns the reward model of token rewards; None without one."""
    from verl_agentic.verl.extensions.methods.trainer.implicit_rewards import check_implicit_reward

    return check_implicit_reward(config)


@section("algorithm.self_teacher")
def self_teacher_tau(config: Any) -> float | None:
    """Returns `tau` of the teacher of the loss sdpo, or None if the teacher is the actor."""
    from verl_agentic.verl.extensions.methods.trainer.self_teacher import teacher_tau

    return teacher_tau(config)


def check_extra_rows(config: Any) -> None:
    """Refuses extra rows under replayed routes."""
    loss = str(OmegaConf.select(config, _LOSS))
    has_teacher = needs_column(config, "teacher_log_prob_BT")
    if has_teacher or has(config, "algorithm.prompt_information"):
        from verl_agentic.verl.extensions.methods.trainer.extra_rows import check_router_replay

        check_router_replay(config, feature=f"the loss {loss}" if has_teacher else "algorithm.prompt_information")


def check_engine(config: Any) -> None:
    """Refuses engines and settings with which nothing computes what a method needs."""
    from verl_agentic.verl.trainer.loss_checks import check_old_log_probs

    loss = f"the loss {OmegaConf.select(config, _LOSS)}"
    features = {key: has(config, key) for key in ("algorithm.length_lr", "algorithm.linear_lr")}
    features[loss] = _needs_mean_log_prob(config)
    strategy = OmegaConf.select(config, "actor_rollout_ref.actor.strategy")
    for feature, is_asked in features.items():
        if is_asked and strategy not in ("fsdp", "fsdp2"):
            raise ConfigError(f"{feature} works with actor.strategy fsdp and fsdp2, got {strategy!r}; unset it")
    if features[loss]:
        check_old_log_probs(config, feature=loss)
        _check_all_logits(config, feature=loss)


def _check_all_logits(config: Any, *, feature: str) -> None:
    """Refuses verl's fused kernels, which never hold all logits."""
    model = "actor_rollout_ref.model"
    backend = OmegaConf.select(config, f"{model}.fused_kernel_options.impl_backend")
    if OmegaConf.select(config, f"{model}.use_fused_kernels") and backend != "sampled":
        raise ConfigError(
            f"{feature} needs all logits, got {model}.use_fused_kernels=true with impl_backend={backend}; set "
            f"{model}.use_fused_kernels=false"
        )


def check_top_tokens(config: Any) -> None:
    """Refuses engines and settings with which nothing computes the log-probs of the most likely tokens."""
    from verl_agentic.verl.trainer.loss_checks import check_old_log_probs

    if not count_top_tokens(config):
        return
    check_old_log_probs(config, feature="top_tokens of the loss")
    _check_all_logits(config, feature="top_tokens of the loss")
    places = ("actor_rollout_ref.actor", "actor_rollout_ref.actor.fsdp_config")
    keys = [f"{place}.ulysses_sequence_parallel_size" for place in places]
    shared = {key: size for key in keys if (size := OmegaConf.select(config, key) or 1) > 1}
    strategy = OmegaConf.select(config, "actor_rollout_ref.actor.strategy")
    if strategy not in ("fsdp", "fsdp2") or shared:
        raise ConfigError(
            "top_tokens of the loss works with actor.strategy fsdp and fsdp2 and whole sequences, got "
            f"{strategy!r} and {shared}; change them, or set top_tokens=0 and alpha=1"
        )


def check_cost_limits(config: Any) -> None:
    """Refuses limits of costs where nothing reads the changed rewards."""
    if has(config, "algorithm.cost_limits"):
        from verl_agentic.verl.extensions.methods.trainer.added_rewards import check_readers

        check_readers(config, section="algorithm.cost_limits")


def check_models(settings: CurriculumSettings) -> None:
    """Refuses invalid settings of the models that propose instructions and tasks."""
    models = {
        "instructions.reflector": settings.instructions and settings.instructions.reflector,
        "task_set.mutator": settings.task_set and settings.task_set.mutator,
    }
    for name, model in models.items():
        if model is not None:
            from verl_agentic.graders.models.chat_model import ChatModel

            read_settings(ChatModel, dict(model), section=f"data.curriculum.{name}")


def _needs_mean_log_prob(config: Any) -> bool:
    return needs_column(config, "mean_log_ratio_BT")


_ALGORITHM = ("cost_limits", "implicit_reward", "length_lr", "linear_lr", "prompt_information", "self_teacher")
FEATURES = Features(
    places={
        **{key: f"algorithm.{key}" for key in _ALGORITHM},
        **{f"critic.{key}": f"critic.{key}" for key in ("categorical", "target")},
    },
    needs_trainer=(*(f"algorithm.{key}" for key in _ALGORITHM), "critic.target"),
    checks=(check_extra_rows, check_engine, check_top_tokens, check_cost_limits),
    curriculum_checks=(check_models,),
    trainer_parts=(
        f"{_TRAINER}.implicit_rewards:ImplicitRewards",
        f"{_TRAINER}.cost_limits:CostLimits",  # after all parts that add rewards
        f"{_TRAINER}.whole_groups:WholeGroups",
        f"{_TRAINER}.loss_columns:MeanLogProbs",
        f"{_TRAINER}.prompt_effect:PromptEffect",
        f"{_TRAINER}.self_teacher:SelfTeacher",
        f"{_TRAINER}.loss_columns:PositiveShare",
        f"{_TRAINER}.learning_rates:LearningRates",
    ),
    curriculum_parts=(f"{_TRAINER}.proposing_models:make_mutator", f"{_TRAINER}.proposing_models:make_reflector"),
    adapters=(
        Adapter(
            module="extensions.methods.trainer.shuffled_rewards",
            needs="verl.trainer.ppo.core_algos",
            gives="estimator grpo_shuffled (a control)",
            chosen_by="algorithm.adv_estimator=grpo_shuffled",
            demanded_by=lambda config: has(config, "algorithm.adv_estimator", "grpo_shuffled"),
        ),
        Adapter(
            module="extensions.methods.engine.mean_log_prob",
            needs=_FSDP,
            gives="mean log-prob over the vocabulary",
            chosen_by=f"{_LOSS}=rover",
            demanded_by=_needs_mean_log_prob,
        ),
        Adapter(
            module="extensions.methods.engine.top_log_probs",
            needs=_FSDP,
            gives="log-probs of the most likely tokens",
            chosen_by=f"{_LOSS}=sdpo, agentic.policy_loss.options.top_tokens",
            demanded_by=lambda config: count_top_tokens(config) > 0,
        ),
        Adapter(
            module="extensions.methods.engine.critic_config",
            needs="verl.workers.config.critic",
            gives="bins of categorical critics, target networks",
            chosen_by="agentic.critic.categorical, agentic.critic.target",
            demanded_by=lambda config: has(config, "critic.categorical") or has(config, "critic.target"),
        ),
        Adapter(
            module="extensions.methods.engine.categorical_critic",
            needs=_FSDP,
            gives="critics that classify returns",
            chosen_by="agentic.critic.categorical",
            demanded_by=lambda config: has(config, "critic.categorical"),
            behind=("engine.value_head",),
        ),
        Adapter(
            module="extensions.methods.engine.target_critic",
            needs=_FSDP,
            gives="a target network beside the critic",
            chosen_by="agentic.critic.target",
            demanded_by=lambda config: has(config, "critic.target"),
        ),
        Adapter(
            module="extensions.methods.engine.ema_teacher",
            needs=_FSDP,
            gives="a teacher that follows the actor slowly",
            chosen_by="agentic.self_teacher",
            demanded_by=lambda config: has(config, "algorithm.self_teacher"),
            # The engine of critics inherits what this one changes.
            behind=("extensions.methods.engine.categorical_critic", "extensions.methods.engine.target_critic"),
        ),
        Adapter(
            module="extensions.methods.engine.learning_rate",
            needs=_FSDP,
            gives="a learning rate that falls with the length of responses, or over the run",
            chosen_by="agentic.length_lr.reference_tokens, agentic.linear_lr.min_ratio",
            demanded_by=lambda config: has(config, "algorithm.length_lr") or has(config, "algorithm.linear_lr"),
        ),
        Adapter(
            module="extensions.methods.engine.reference_model",
            needs="verl.workers.engine_workers",
            gives="a reference with a model of its own",
            chosen_by="agentic.implicit_reward",
            demanded_by=lambda config: has(config, "algorithm.implicit_reward"),
        ),
    ),
)
