"""The table of findings: every command prints it."""

from __future__ import annotations

import io
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from verl_agentic.base.finding import Finding, Status
from verl_agentic.cli.findings import print_findings, printable


def shown(*findings: Finding, **options: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_findings(console, findings, **options)
    return console.file.getvalue()


@pytest.mark.parametrize("status", get_args(Status))
def test_a_row_shows_all_that_a_finding_says(status: Status) -> None:
    finding = Finding(check="x", status=status, found="[red]3 of 4[/red]", advice="lower y", look_at=("a/1", "b/2"))
    mark = "FAIL" if status == "fail" else status
    lines = [line.split() for line in shown(finding, titles={"x": "the title"}).splitlines()]
    assert ["the", "title", *mark.split(), "[red]3", "of", "4[/red]"] in lines
    assert ["try:", "lower", "y"] in lines and ["see:", "a/1"] in lines and ["see:", "b/2"] in lines


def test_what_a_finding_leaves_out_has_no_line() -> None:
    assert not {"try:", "see:"} & set(shown(Finding(check="x", status="ok", found="fine")).split())


@given(st.text())
def test_no_text_steers_the_terminal(text: str) -> None:
    assert all(char in "\n\t" or char.isprintable() for char in printable(text))
    assert printable(text) == text or any(not char.isprintable() for char in text)
