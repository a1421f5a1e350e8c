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


def read_rows(text: str, begin: str, end: str) -> list[list[str]]:
    block = text.partition(begin)[2].partition(end)[0]
    return [line.strip("| ").split(" | ") for line in block.split("\n") if line.startswith("| ")]


def test_the_page_has_every_family_and_a_reason_for_each_no(script: Any) -> None:
    text = script.PAGE.read_text()
    rows = read_rows(text, script.BEGIN, script.END)
    assert rows[0] == list(script.COLUMNS) and [row[0] for row in rows[2:]] == [f.name for f in script.FAMILIES]
    for row in rows[2:]:
        (reasons,) = [line for line in text.split("\n") if line.startswith(f"- {row[0]}: ")] or [""]
        assert reasons.count(";") + bool(reasons) >= row.count("no"), row
    tools = read_rows(text, script.TOOLS_BEGIN, script.TOOLS_END)
    assert tools[0] == list(script.tool_prompts.COLUMNS)
    assert [row[0] for row in tools[2:]] == [row[0] for row in rows[2:] if row[3] == "yes"]


DROPS = """\
{%- for tool in tools or [] %}{% for name, part in tool.function.parameters.properties.items() -%}
{{ name }}: {{ part.type }}, {{ part.description }}
{% endfor %}{% endfor -%}
{%- for m in messages -%}
{%- if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% else %}{{ m.content | tojson }}{% endif -%}
{%- endfor -%}
"""


def test_the_table_of_tools_tells_templates_apart(script: Any, tiny_chat: Any) -> None:
    def measure(template: str) -> list[str]:
        tokenizer = Family("x", template, "x").chat(tiny_chat[0]).tokenizer
        *_, row = script.tool_prompts.write_table([("x", tokenizer)])
        return row.strip("| ").split(" | ")

    assert measure(CHATML_WITH_TOOLS) == ["x", "-", "kept", "as it is", "dropped"]
    dropped = "enums, `nullable`, types of items, nested names, nested types, nested enums, other unions"
    assert measure(DROPS) == ["x", dropped, "dropped", "as JSON text", "dropped"]
    assert measure("{%- for m in messages %}{{ m.content }}{% endfor -%}")[0] == "---"
    assert measure("{{ raise_exception('no') }}")[1:] == ["refused: no", "refused", "refused", "refused"]


@pytest.mark.slow
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
