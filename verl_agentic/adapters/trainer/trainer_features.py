"""The sections of curricula, estimators and extra columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl_agentic.adapters.sections import plain, plain_section, section
from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings

if TYPE_CHECKING:
    from verl_agentic.algorithms.batch_metrics.prompt_information import PromptInformationSettings
    from verl_agentic.algorithms.estimate import CreditSettings
    from verl_agentic.algorithms.losses.implicit_reward import ImplicitRewardSettings
    from verl_agentic.algorithms.losses.length_lr import LengthLrSettings
    from verl_agentic.sampling.curriculum import CurriculumSettings


@section("data.curriculum", of="data")
def curriculum_settings(data: Any) -> CurriculumSettings | None:
    """Returns the curriculum of the section `data`; None without one.

    Raises:
        ConfigError: the section cannot work, or not with the workers of the data loader.
    """
    from verl_agentic.sampling.curriculum import CurriculumSettings

    if (written := plain(data.get("curriculum"))) is None:
        return None
    settings = read_settings(CurriculumSettings, written, section="data.curriculum")
    if workers := int(data.get("dataloader_num_workers") or 0):
        raise ConfigError(
            f"data.curriculum needs data.dataloader_num_workers=0, got {workers}: workers fetch prompts two batches "
            "each ahead of time, chosen by what was known then; set it to 0"
        )
    return settings


@section("algorithm.credit")
def credit_settings(config: Any) -> CreditSettings:
    """Returns what holds for all estimators, with options that the configured one has.

    Raises:
        ConfigError: the section, or the estimator, cannot work.
    """
    from verl_agentic.algorithms.advantage import is_advantage, load_advantage
    from verl_agentic.algorithms.estimate import CreditSettings

    settings = read_settings(CreditSettings, plain_section(config, "algorithm.credit"), section="algorithm.credit")
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
    return None if written is None else read_settings(LengthLrSettings, written, section="algorithm.length_lr")


@section("algorithm.prompt_information")
def prompt_information(config: Any) -> PromptInformationSettings | None:
    """Returns how it is measured whether responses depend on their prompts; None where it is not."""
    from verl_agentic.algorithms.batch_metrics.prompt_information import PromptInformationSettings

    written = plain_section(config, "algorithm.prompt_information")
    if written is None:
        return None
    return read_settings(PromptInformationSettings, written, section="algorithm.prompt_information")


@section("algorithm.self_teacher")
def self_teacher_tau(config: Any) -> float | None:
    """Returns by how much the teacher of the loss sdpo follows the actor; None: it is the actor."""
    from verl_agentic.adapters.trainer.self_teacher import teacher_tau

    return teacher_tau(config)
