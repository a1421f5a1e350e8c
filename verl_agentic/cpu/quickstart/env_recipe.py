"""The recipe of an environment that has none (`verl-agentic quickstart --env`): that of the quickstart, resized."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from verl_agentic.base.errors import ConfigError, boundary
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.cpu.quickstart.tasks import run_demonstrations
from verl_agentic.cpu.tiny_model import MAX_POSITIONS, make_tiny_tokenizer
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.env_package import absolute_id
from verl_agentic.episode.records.episode import Episode

_BASE = "quickstart"
_NUM_MEASURED = 64  # demonstrations that are played to size the episodes
_MARGIN = 1.25  # of the longest one that is solved: other tasks may be longer
_MIN_RESPONSE = 32  # tokens, so that a wrong answer may be longer than a short right one
_MAX_TOKENS = MAX_POSITIONS - _MIN_RESPONSE
_MAX_TURNS = 32
_NUM_TRAIN, _NUM_DEMOS = 1000, 4000
# Words that occur in few tasks, such as names of things, are tokens, so that a tiny model can copy them.
_TOKENIZER = {"own_tokenizer": True, "token_share": 0.03}
_HEADER = "# Written by `verl-agentic quickstart --env`, in each run: change a copy, and run it with --recipe ./COPY.\n"


def write_env_recipe(env: str, folder: Path) -> str:
    """Writes `course.yaml`, `sft.yaml` and `grpo.yaml` of an environment; returns the folder as name of the recipe.

    Raises:
        ConfigError: the environment has no rows or no solutions, or no demonstration solves its task.
        EnvError: demonstrations are void.
    """
    env_id = absolute_id(env)
    sizes = {"num_train": _NUM_TRAIN, "num_demos": _NUM_DEMOS}
    course = Course(recipe=_BASE, env=env_id, num_train=_NUM_TRAIN, num_demos=_NUM_DEMOS)
    prompt, response, turns = _measure(course, _play(course))
    sft, grpo = course.read("sft"), course.read("grpo")
    sft["data"]["max_length"] = prompt + response
    grpo["data"] |= {"max_prompt_length": prompt, "max_response_length": response}
    grpo["agentic"] = {"env": env_id, "limits": {"max_turns": turns}}
    files = {"course": {"env": env_id, **sizes, **_TOKENIZER}, "sft": sft, "grpo": grpo}
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        (folder / f"{name}.yaml").write_text(_HEADER + yaml.safe_dump(values, sort_keys=False))
    return str(folder.resolve())


def _play(course: Course) -> list[Episode]:
    """Returns demonstrations of training tasks, with the limits of a tiny model."""
    make_rows = course.package.make_rows
    assert make_rows is not None
    with boundary(ConfigError, f"making rows of {course.env}"):
        rows = make_rows(split="train", count=_NUM_MEASURED, seed=0)
    limits = EpisodeLimits(max_response_tokens=_MAX_TOKENS, max_context_tokens=_MAX_TOKENS, max_turns=_MAX_TURNS)
    with tempfile.TemporaryDirectory() as folder:
        make_tiny_tokenizer(Path(folder))
        return run_demonstrations(course, rows, model=Path(folder), seed=0, limits=limits)


def _measure(course: Course, episodes: Sequence[Episode]) -> tuple[int, int, int]:
    """Returns the maximum tokens of prompt and response, and turns.

    The tokenizer that is made of these texts later takes fewer tokens.
    """
    solved = [episode for episode in episodes if episode.reward.outcome == 1.0]
    if not solved:
        raise ConfigError(
            f"a quickstart needs solutions within {_MAX_TOKENS} tokens and {_MAX_TURNS} turns, got none of "
            f"{len(episodes)} demonstrations of {course.env}; run `verl-agentic env validate {course.env}`"
        )
    rows = [row for episode in solved for row in episode.trajectories]
    prompt = max(len(row.prompt_ids) for row in rows)
    response = max(len(row.response_ids) for row in rows)
    margin = min(_MARGIN, _MAX_TOKENS / (prompt + response))
    turns = max(len(episode.actions) for episode in solved) + 1
    return int(margin * prompt), max(_MIN_RESPONSE, int(margin * response)), turns
