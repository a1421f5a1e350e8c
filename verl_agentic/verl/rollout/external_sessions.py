"""Sessions that a demonstration plays in the policy's place: `agentic.external_sessions`.

The demonstration is the row's own (`extra_info.demonstration`), or else the environment's solution, which must be more
than the ground truth where the loss imitates it.
The same loop and codec play and score them. Their rows carry the column `is_external`, by which the loss `rl_plus`
tells them from the policy's own; to estimators they are siblings like others, and other losses take them for the
policy's own. Their `rollout_log_probs` are 0: a script writes what it writes with certainty, and verl's metrics of the
gap between trainer and rollout (`training/rollout_probs_diff_*`) see that.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError, boundary
from verl_agentic.base.settings import Bounds, check_value
from verl_agentic.base.types import Message
from verl_agentic.credit.policy_loss import needs_of_loss
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import Exploration
from verl_agentic.episode.collect import Script, scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.loop_settings import LoopSettings
from verl_agentic.verl.sections import AGENTIC

COLUMN = "is_external"
_OPTION = "rollout.custom.agentic.external_sessions"
DEMONSTRATION = "demonstration"
"""Key of a row's `extra_info`: the text of the policy's turn, or a list of the texts of its turns. A text is trained
unchanged, reasoning and calls included, as the policy would sample it after the generation prompt."""
_CORRECTIONS = ("rollout_is", "rollout_rs", "bypass_mode")
_MARKUP = re.compile(r"\\boxed|</?\w+>|[^\w.-]")
"""What protocols write around an answer."""


def check_external_sessions(config: Any) -> None:
    """Fails where sessions of a script cannot be trained on beside those of the policy.

    Args:
        config: verl's, of the whole trainer.

    Raises:
        ConfigError: no session is left to the policy, verl would take a script for a stale policy, or there is none.
    """
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    section = (rollout.get("custom") or {}).get("agentic") or {}
    count, group_size = section.get("external_sessions") or 0, rollout.get("n") or 1
    check_value(count, int, name=f"{AGENTIC}.external_sessions", bounds=Bounds(min=0))
    if not count:
        return
    if count >= group_size:
        raise ConfigError(
            f"{_OPTION} must be below rollout.n, or no session is the policy's own, got {count} of {group_size}; "
            "lower it, or raise rollout.n"
        )
    correction = OmegaConf.select(config, "algorithm.rollout_correction") or {}
    if used := [name for name in _CORRECTIONS if correction.get(name)]:
        raise ConfigError(
            f"{_OPTION} does not go with algorithm.rollout_correction, which weighs rows by the log-probs of the "
            f"policy that sampled them, and a script has none, got {used}; unset them, or set {_OPTION}=0"
        )
    if isinstance(env := section.get("env"), str):
        _gold_of(env)


def is_external(settings: LoopSettings, session_id: Any, *, is_training: bool) -> bool | None:
    """Tells whether a session is the script's: the first ones of a prompt, in training; None when the option is off.

    The first and not the last ones, because a session does not know how many siblings it has (`data.curriculum`).
    """
    if not settings.external_sessions:
        return None
    return is_training and int(session_id or 0) < settings.external_sessions


def imitates_demonstrations(config: Any) -> bool:
    """Tells whether the policy loss learns from demonstrations as such (`rl_plus`)."""
    return "is_external_B" in needs_of_loss(
        str(OmegaConf.select(config, "actor_rollout_ref.actor.policy_loss.loss_mode"))
    )


def solution_setup(setup: EpisodeSetup, row: EnvRow, *, env_id: str, is_imitated: bool) -> EpisodeSetup:
    """Returns a setup in which the row's demonstration or the environment's `gold(row)` plays; nothing is forced, and
    there is one attempt.

    Args:
        setup: of the policy.
        row: that is played.
        env_id: its environment.
        is_imitated: refuses a solution that is the ground truth alone: it would teach to answer without reasoning.

    Raises:
        ConfigError: the environment has no solution.
        DataError: it has none for this row, or it is refused, or the row's demonstration is malformed.
    """
    if (script := _own_demonstration(row)) is None:
        gold = _gold_of(env_id)
        with boundary(DataError, f"the solution of a row of {env_id!r}"):
            script = gold(row)
        if is_imitated and _is_bare_answer(gold(row), row):
            raise DataError(
                f"the solution of {env_id!r} is the ground truth alone, which teaches to answer without reasoning, got "
                f"{row.ground_truth!r}; give the rows a text with reasoning in extra_info.{DEMONSTRATION}"
            )
    player = scripted(script, codec=setup.codec, tokenizer=setup.tokenizer, limits=setup.limits)
    return replace(setup, policy=player.policy, exploration=Exploration(), guidance=False)


def _is_bare_answer(script: Script, row: EnvRow) -> bool:
    """Tells whether the first turn of a script is nothing but the ground truth."""
    try:
        turn = script(row.prompt)
    except Exception:  # it answers what the environment says first
        return False
    if inspect.iscoroutine(turn):
        turn.close()
    if not isinstance(turn, Message) or turn.tool_calls:
        return False
    return _MARKUP.sub("", turn.content) == _MARKUP.sub("", str(row.ground_truth))


def _own_demonstration(row: EnvRow) -> Script | None:
    """Returns the turns of a row's own demonstration as a script; None without one. After them it says nothing."""
    demonstration = row.extra.get(DEMONSTRATION)
    if demonstration is None:
        return None
    listed = demonstration.tolist() if hasattr(demonstration, "tolist") else demonstration
    texts = [listed] if isinstance(listed, str) else listed
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(
            f"extra_info.{DEMONSTRATION} must be the text of a turn, or a list of the texts of all turns, got "
            f"{str(demonstration)[:80]!r}; fix the row"
        )
    turns = iter(texts)
    return lambda messages: next(turns, "")


def _gold_of(env_id: str) -> Callable[[EnvRow], Script]:
    gold = load_env_package(env_id).gold
    if gold is None:
        raise ConfigError(
            f"{_OPTION} needs the environment's solution, got none from {env_id!r}; give its package a function "
            f"gold(row), or set {_OPTION}=0"
        )
    return gold
