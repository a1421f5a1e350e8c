"""Chats of several families on one tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_tokenizers import REAL


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Name -> `chat_templates.Chat`; for reading only."""
    from chat_templates import FAMILIES
    from transformers import AutoTokenizer

    from verl_agentic.cpu.tiny_model import make_tiny_tokenizer

    folder: Path = tmp_path_factory.mktemp("tokenizer")
    make_tiny_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {family.name: family.chat(tokenizer) for family in FAMILIES}


@pytest.fixture(scope="session", params=["tiny", *REAL])
def model_folder(request: pytest.FixtureRequest, tiny_model: Path, real_tokenizer: Callable[[str], Path]) -> Path:
    """Folders with the tokenizers and chat templates of the tiny model and of real models."""
    return tiny_model if request.param == "tiny" else real_tokenizer(request.param)


@pytest.fixture(scope="session")
def model_chat(model_folder: Path) -> tuple[Any, Any]:
    """Tokenizer and chat codec of each model."""
    from verl_agentic.verl.rollout.model_codec import load_codec

    return load_codec(str(model_folder))


@pytest.fixture(scope="session")
def chatml(model_folder: Path) -> Any:
    """`chat_templates.Chat` with one template for the tokenizers of all models."""
    from chat_templates import FAMILIES
    from transformers import AutoTokenizer

    return FAMILIES[0].chat(AutoTokenizer.from_pretrained(model_folder))
