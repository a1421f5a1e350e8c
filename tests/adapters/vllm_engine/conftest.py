"""Fixtures of the tests that need vLLM: models that know how to play, each made once."""

from __future__ import annotations

from pathlib import Path

import pytest


def _player(folder: Path, *, is_chat: bool) -> Path:
    # Only now: where vLLM is missing, these tests are collected and skipped.
    from searching import ROWS, TAGS, call_script, make_searching_env, tag_script
    from taught_model import teach

    from verl_agentic.cpu.tiny_model import make_tiny_model
    from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
    from verl_agentic.episode.env_package import load_env_package

    make_tiny_model(folder / "model")
    (folder / "tags.yaml").write_text(TAGS)
    teach(
        folder / "model",
        ROWS[:8],
        make_env=load_env_package(str(make_searching_env(folder))).make_env,
        script=call_script if is_chat else tag_script,
        protocol="chat" if is_chat else str(folder / "tags.yaml"),
        limits=EpisodeLimits(max_response_tokens=400, max_context_tokens=600, max_turns=6),
    )
    return folder / "model"


@pytest.fixture(scope="session")
def chat_player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that searches by calls of the chat template."""
    return _player(tmp_path_factory.mktemp("chat_player"), is_chat=True)


@pytest.fixture(scope="session")
def tag_player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that searches with tags, in the protocol `searching.TAGS`."""
    return _player(tmp_path_factory.mktemp("tag_player"), is_chat=False)
