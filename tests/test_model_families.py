"""The page of model families: its table is measured, complete, and tells templates apart."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from chat_templates import CHATML_WITH_TOOLS, REFUSING, SINGLE_TURN, Family

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script() -> Any:
    """The module that writes the page."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        return importlib.import_module("model_families_page")
    finally:
        sys.path.pop(0)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "build" / "templates" / "trl").is_dir(), reason="make families downloads the templates")
def test_the_page_is_current(script: Any) -> None:
    assert script.PAGE.read_text() == script.page(), "run make families"


def test_the_page_has_every_family_and_a_reason_for_each_no(script: Any) -> None:
    text = script.PAGE.read_text()
    rows = [
        line.strip("| ").split(" | ") for line in text.partition(script.BEGIN)[2].split("\n") if line.startswith("| ")
    ]
    assert rows[0] == list(script.COLUMNS) and [row[0] for row in rows[2:]] == [f.name for f in script.FAMILIES]
    for row in rows[2:]:
        (reasons,) = [line for line in text.split("\n") if line.startswith(f"- {row[0]}: ")] or [""]
        assert reasons.count(";") + bool(reasons) >= row.count("no"), row


def test_the_table_tells_templates_apart(script: Any, tiny_chat: Any) -> None:
    def measure(template: str) -> dict[str, str]:
        tokenizer = Family("x", template, "x").chat(tiny_chat[0]).tokenizer
        family = script.Family("x", "", "smollm", "<|im_end|>", "hermes")
        return dict(zip(script.COLUMNS, script.table_row(script.Trial(family, tokenizer)), strict=True))

    able = measure(CHATML_WITH_TOOLS)
    assert {*list(able.values())[3:-1]} == {"yes", "exact"}
    refusing = measure(REFUSING[0].template)
    assert [refusing[name] for name in ("user message", "two results", "masks", "preflight")] == [
        "exact",
        "as user",
        "yes",
        "yes",
    ]
    single = measure(SINGLE_TURN.template)
    assert [single[name] for name in ("user message", "preflight")] == ["no", "no"]
