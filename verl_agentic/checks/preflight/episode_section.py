"""Reads the section of `env_agent` of a planned run."""

from __future__ import annotations

from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.episode.loop_settings import LoopSettings, read_loop_settings

SECTION = "actor_rollout_ref.rollout.custom.agentic"


def loop_settings(run: PlannedRun) -> LoopSettings:
    """Returns the settings of the section. Raises ConfigError if it is invalid."""
    response = int(run.number("actor_rollout_ref.rollout.response_length", 1))
    prompt = int(run.number("actor_rollout_ref.rollout.prompt_length", 1))
    return read_loop_settings(
        run.get(SECTION, {}), section=SECTION, max_response_tokens=response, max_context_tokens=prompt + response
    )
