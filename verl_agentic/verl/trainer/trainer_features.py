"""The sections, checks and adapters of trainers: curricula, estimators, extra columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.verl.features import Adapter, Features, all_features
from verl_agentic.verl.recipe_options import options_without_recipe, replacing_in_errors
from verl_agentic.verl.reward.reward_features import has_rubric
from verl_agentic.verl.rollout.rollout_features import is_env_agent
from verl_agentic.verl.sections import AGENTIC, ROLLOUT, has, plain, plain_section, section

if TYPE_CHECKING:
    from verl_agentic.credit.estimate import CreditSettings
    from verl_agentic.sampling.curriculum import CurriculumSettings


_LOSS = "actor_rollout_ref.actor.policy_loss"


@section("data.curriculum", of="data")
def curriculum_settings(data: Any) -> CurriculumSettings | None:
    """Returns the curriculum, or None. Raises ConfigError if the section is invalid, or the data loader has workers."""
    from verl_agentic.sampling.curriculum import CurriculumSettings

    if (raw_settings := plain(data.get("curriculum"))) is None:
        return None
    settings = read_settings(CurriculumSettings, raw_settings, section="data.curriculum")
    for check in (check for features in all_features() for check in features.curriculum_checks):
        check(settings)
    if workers := int(data.get("dataloader_num_workers") or 0):
        raise ConfigError(
            f"data.curriculum needs data.dataloader_num_workers=0, got {workers}: workers fetch prompts two batches "
            "each ahead of time, chosen by what was known then; set it to 0"
        )
    return settings


@section("algorithm.credit")
def credit_settings(config: Any) -> CreditSettings:
    """Returns the settings of all estimators. Raises ConfigError if the section or the estimator is invalid."""
    from verl_agentic.credit.advantage import is_advantage, load_advantage
    from verl_agentic.credit.estimate import CreditSettings

    settings = read_settings(CreditSettings, plain_section(config, "algorithm.credit"), section="algorithm.credit")
    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if is_advantage(name):
        with replacing_in_errors("algorithm.credit.options"):
            load_advantage(name).check_options(settings.options)
    elif settings.options:
        raise ConfigError(
            f"algorithm.credit.options are for estimators of ours, got {dict(settings.options)} for {name!r}; unset "
            "them"
        )
    return settings


def is_our_trainer(config: Any) -> bool:
    """Tells whether a trainer of this package runs."""
    return str(OmegaConf.select(config, "trainer.v1.trainer_mode")).startswith("agentic_")


def choose_trainer(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the trainer that does what verl's does, and what a feature needs."""
    key = "trainer.v1.trainer_mode"
    mode = OmegaConf.select(config, key)
    try:
        needing = _needs_trainer(config)
    except ConfigError:  # an estimator or a loss that is not there: `check_estimator` refuses it
        return
    if needing and mode in ("sync", "colocate_async", "separate_async"):
        yield key, f"agentic_{mode}", needing[0]


def choose_options(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the options of the estimator without those of a recipe's."""
    return options_without_recipe(config, chooser="algorithm.adv_estimator", place="algorithm.credit.options")


def choose_data_seed(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields a seed if verl would draw other rows of a file at each start, also at a resume."""
    data = OmegaConf.select(config, "data") or {}
    drawn = [f"data.{split}_max_samples" for split in ("train", "val") if (data.get(f"{split}_max_samples") or -1) > 0]
    is_ours = is_env_agent(config) or data.get("curriculum") is not None
    if drawn and is_ours and data.get("shuffle") and data.get("seed") is None:
        yield "data.seed", 1, drawn[0]


def check_trainer(config: Any) -> None:
    """Refuses what a trainer that is neither verl's nor ours would ignore."""
    needing = [key for key in _needs_trainer(config) if "=" not in key]
    if needing and not is_our_trainer(config):
        raise ConfigError(
            f"{needing[0]} needs a trainer of ours, got trainer.v1.trainer_mode="
            f"{OmegaConf.select(config, 'trainer.v1.trainer_mode')!r}; set agentic_sync, agentic_colocate_async or "
            "agentic_separate_async"
        )


def _needs_trainer(config: Any) -> list[str]:
    """Returns the keys of what verl's own trainers do not give what it needs."""
    from verl_agentic.credit.advantage import needs_our_trainer
    from verl_agentic.credit.policy_loss import needs_of_loss

    keys = [key for features in all_features() for key in features.needs_trainer]
    needing = [key for key in keys if OmegaConf.select(config, key) not in (None, False)]
    estimator = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    needing += [f"algorithm.adv_estimator={estimator}"] if needs_our_trainer(estimator) else []
    loss = str(OmegaConf.select(config, f"{_LOSS}.loss_mode"))
    return needing + ([f"{_LOSS}.loss_mode={loss}"] if needs_of_loss(loss) - {"entropy_BT"} else [])


def check_estimator(config: Any) -> None:
    """Refuses an estimator that lacks options, a critic or log-probs."""
    from verl_agentic.credit.advantage import is_advantage, load_advantage

    name = str(OmegaConf.select(config, "algorithm.adv_estimator"))
    if not is_advantage(name):
        return
    estimator = load_advantage(name)
    # Of options that must be given, none may be given.
    estimator.check_options(credit_settings(config).options)
    if estimator.needs_critic and not OmegaConf.select(config, "critic.enable"):
        raise ConfigError(f"estimator {name!r} needs a critic, got critic.enable=null or false; set critic.enable=true")
    has_log_probs = OmegaConf.select(config, f"{ROLLOUT}.calculate_log_probs")
    if "rollout_log_probs_BT" in estimator.needs and not has_log_probs:
        raise ConfigError(
            f"estimator {name!r} needs the log-probs of the policy that sampled, got "
            f"{ROLLOUT}.calculate_log_probs={has_log_probs}; set it to true, or take the estimator "
            f"{'turn_gae' if 'turn_ids_BT' in estimator.needs else 'vapo_gae'}, which needs none"
        )


def check_loss(config: Any) -> None:
    """Refuses a loss or an estimator that the rest of the configuration does not fit."""
    from verl_agentic.verl.trainer.loss_checks import check_inputs_of_loss, check_our_trainer

    check_inputs_of_loss(config)
    if is_our_trainer(config):
        check_our_trainer(config)


def _makes_advantages(config: Any) -> bool:
    from verl_agentic.credit.advantage import is_advantage

    is_ours = is_advantage(str(OmegaConf.select(config, "algorithm.adv_estimator")))
    return is_ours or is_our_trainer(config) or is_env_agent(config) or has(config, "algorithm.credit")


def _has_schedule(config: Any) -> bool:
    section = OmegaConf.select(config, AGENTIC) or {}
    return has_rubric(config) or bool({"temperature_schedule", "max_void_share"} & set(section))


FEATURES = Features(
    places={"curriculum": "data.curriculum", "credit": "algorithm.credit"},
    choices=(choose_options, choose_trainer, choose_data_seed),
    needs_trainer=("algorithm.credit.by_source",),
    checks=(check_trainer, check_estimator, check_loss),
    adapters=(
        Adapter(
            module="trainer.advantages",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="advantage estimators, and group safety for verl's",
            chosen_by="algorithm.adv_estimator, agentic.credit",
            demanded_by=_makes_advantages,
        ),
        Adapter(
            module="trainer.trainers",
            needs="verl.trainer.ppo.v1",
            gives="trainers that tell estimators and losses what verl's drop",
            chosen_by="trainer.v1.trainer_mode=agentic_sync | agentic_colocate_async | agentic_separate_async",
            demanded_by=is_our_trainer,
        ),
        Adapter(
            module="trainer.prompt_order",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="curricula, group sizes, growing task sets",
            chosen_by="agentic.curriculum",
            demanded_by=lambda config: has(config, "data.curriculum"),
            behind=("replay_buffer.episode_buffer",),
        ),
        Adapter(
            module="trainer.schedules",
            needs="verl.trainer.ppo.v1.trainer_base",
            gives="temperature schedule and circuit breaker",
            chosen_by="agentic.{temperature_schedule, max_void_share}",
            demanded_by=_has_schedule,
            behind=("extensions.monitoring.trainer_waits",),
        ),
    ),
)
