"""The page of all configuration keys is generated from the classes that read them, and misses none."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_agentic.adapters.configuration_page import CHAPTERS, documented_keys, page
from verl_agentic.adapters.sections import all_sections

_PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_the_codes() -> None:
    current = page() == _PAGE.read_text(encoding="utf-8")
    assert current, "python -m verl_agentic.adapters.configuration_page docs/configuration.md"


def test_every_section_that_is_read_is_on_the_page() -> None:
    assert set(all_sections()) <= documented_keys()


def test_the_page_names_types_and_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page()
    monkeypatch.setenv("VERL_AGENTIC_SANDBOX_TOKEN", "hunter2")
    monkeypatch.setenv("VERL_AGENTIC_SANDBOX_URL", "http://secret")
    assert page() == before
    rows = [row for row in before.splitlines() if row.startswith("| `")]
    assert len(rows) > sum(map(len, CHAPTERS.values()))
    assert not any(sign in row for row in rows for sign in ("typing.", "<class", "Bounds"))
