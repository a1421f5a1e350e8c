"""`data make --cover`: rows are counted by question, topic or relation, and the rare ones are asked for."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from maker_runs import model, rows, run

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.making.maker import load_maker
from verl_agentic.log.files.record_files import write_json_lines


async def test_questions_with_too_few_plans_are_asked_again_with_the_plans_they_have(tmp_path: Path) -> None:
    write_json_lines([{"question": "Who wrote it?"}, {"question": "Who read it?"}], tmp_path / "q.jsonl")
    options = {"questions": str(tmp_path / "q.jsonl"), "plans": 2}
    requests: list[str] = []

    def answer(text: str) -> str:
        if "Write plan" not in text:
            return "Fine."
        requests.append(text)
        # The second question gets the same plan until the model is shown it.
        return f"1. Way {text.count('Way') if 'read' in text else len(requests)}."

    chat = model(answer)
    report = await run("planning_actions", tmp_path / "a.jsonl", n=4, chat=chat, cover=2, **options)
    assert report.first_coverage is not None and report.coverage is not None
    assert report.first_coverage.rows == {"Who wrote it?": 2, "Who read it?": 1}
    assert report.coverage.rows == {"Who wrote it?": 2, "Who read it?": 2}
    assert (report.first_coverage.share, report.coverage.share, report.rows) == (0.5, 1.0, 4)
    assert len(requests) == 5 and "1. Way 0." in requests[-1]
    again = await run("planning_actions", tmp_path / "a.jsonl", n=4, chat=chat, cover=2, **options)
    assert len(requests) == 5 and again.coverage == report.coverage, "the journal has all of them"


async def test_held_out_questions_are_not_asked_for_again(tmp_path: Path) -> None:
    write_json_lines([{"question": "Who wrote it?"}, {"question": "Who read it?"}], tmp_path / "q.jsonl")
    write_json_lines([{"question": "Who read it?"}], tmp_path / "val.jsonl")
    options = {"questions": str(tmp_path / "q.jsonl"), "plans": 1, "against": [tmp_path / "val.jsonl"]}
    requests: list[str] = []

    def answer(text: str) -> str:
        requests.append(text)
        return f"1. Way {len(requests)}."

    report = await run("planning_actions", tmp_path / "a.jsonl", n=2, chat=model(answer), cover=2, **options)
    assert report.coverage is not None and report.coverage.rows == {"Who wrote it?": 2}
    assert (report.coverage.share, sum("Who read it?" in text for text in requests)) == (1.0, 2)


async def test_a_cell_that_stays_rare_is_reported_after_three_rounds(tmp_path: Path) -> None:
    requests: Counter[str] = Counter()

    def answer(text: str) -> str:
        topic = re.search(r"about (\w+)\.", text)
        assert topic is not None
        requests[topic[1]] += 1
        task = {"question": f"{topic[1]} {requests[topic[1]]}", "solution": "def f(a):\n    return a", "fn_name": "f"}
        tests: dict[str, Any] = {"inputs": [[n] for n in range(5)], "outputs": list(range(5))}
        return "no" if topic[1] == "graphs" else json.dumps({**task, **tests})

    report = await run(
        "code_tasks", tmp_path / "a.jsonl", n=4, chat=model(answer), cover=3, topics=["sorting", "graphs"], test_s=5.0
    )
    assert report.coverage is not None and report.coverage.rows == {"sorting": 3, "graphs": 0}
    assert (report.coverage.tail, report.coverage.share) == (["graphs"], 0.5)
    assert requests == {"sorting": 3, "graphs": 2 + 3 * 3} and report.unfinished == 0
    assert Counter(row["topic"] for row in rows(tmp_path / "a.jsonl")) == {"sorting": 3}


async def test_questions_about_facts_use_every_relation(tmp_path: Path) -> None:
    facts = [
        {"subject": f"P{n}", "relation": relation, "object": value}
        for n in range(12)
        for relation, value in (("born", f"C{n % 4}"), ("plays", f"I{n % 3}"), ("code", f"X{n}"))
    ]
    write_json_lines(facts, tmp_path / "facts.jsonl")
    options = {"facts": str(tmp_path / "facts.jsonl"), "layers": 0}
    report = await run("set_questions", tmp_path / "a.jsonl", n=1, cover=2, **options)
    assert report.first_coverage is not None and report.coverage is not None
    assert report.first_coverage.share < 1 and report.coverage.share == 1
    assert set(report.coverage.rows) == {"born", "plays", "code"} and min(report.coverage.rows.values()) >= 2
    maker: Any = load_maker("set_questions", options)
    for number in range(8):
        row = await maker.make_for("code", [], seed=1, number=number, model=None)
        assert "code" in maker.find_cells(row)
    counts = Counter(cell for row in rows(tmp_path / "a.jsonl") for cell in {*maker.find_cells(row)})
    assert counts == report.coverage.rows


async def test_a_kind_without_cells_cannot_be_covered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--cover"):
        await run("agent_flan", tmp_path / "a.jsonl", n=1, cover=1)
