"""First-order action synthesis: plans and reasoning without calls of tools, and without their outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from maker_runs import model, rows, run

from verl_agentic.base.errors import DataError
from verl_agentic.data.makers import planning_actions
from verl_agentic.log.files.record_files import write_json_lines


async def test_plans_of_a_question_differ_and_hold_no_call_and_no_output(tmp_path: Path) -> None:
    write_json_lines([{"question": "Who wrote it?"}, {"question": "Who read it?"}], tmp_path / "q.jsonl")
    options = {"questions": str(tmp_path / "q.jsonl"), "plans": 4}
    thoughts = iter(f"Thought {number}." for number in range(99))

    def answer(text: str) -> str:
        if "Write plan" not in text:
            return next(thoughts)
        plans = {
            "1": "1. Look it up.",
            "2": "1. <search>it</search>",
            "3": "1.  look it up!",
            "4": "1. Ask the author.",
        }
        return next(plan for number, plan in plans.items() if f"plan number {number} " in text)

    report = await run("planning_actions", tmp_path / "a.jsonl", n=9, chat=model(answer), **options)
    assert [(row["question"], row["plan"]) for row in rows(tmp_path / "a.jsonl")] == [
        (question, plan)
        for question in ("Who wrote it?", "Who read it?")
        for plan in ("1. Look it up.", "1. Ask the author.")
    ]
    assert report.dropped == {"a call or an output in the plan": 2, "repeats another row (exact)": 2}
    clean = {"plan": "1. Look.", "reasoning": "Fine."}
    texts = ['{"name": "f", "arguments": {}}', '{"name": "f", "parameters": {}}', "Observation: 7", "<tool_response>7"]
    for text in (*texts, "<result>7</result>", "<interpreter>", "<output>7", "<function=f>", "[TOOL_CALLS]"):
        assert await planning_actions.MAKER(**options).verify({**clean, "reasoning": text}) is not None


QUESTION = {
    "question": "Who built it?",
    "answer": ["Ann Lee"],
    "knowledge": ["Ann Lee built all bridges.", "It is a bridge."],
}


@pytest.mark.parametrize(
    ("reasoning", "reason"),
    [
        ("It is a bridge, so Ann Lee built it.\nFINAL ANSWER: ann lee", None),
        ("It is a bridge.\nFINAL ANSWER: Bob", "another answer"),
        ("It is a bridge, so Ann Lee built it.", "no reasoning before a final answer"),
        ("FINAL ANSWER: Ann Lee", "no reasoning before a final answer"),
        ("<search>bridge</search>\nFINAL ANSWER: Ann Lee", "a call or an output in the reasoning"),
    ],
)
async def test_reasoning_ends_in_the_answer_and_calls_nothing(
    tmp_path: Path, reasoning: str, reason: str | None
) -> None:
    write_json_lines([QUESTION], tmp_path / "q.jsonl")
    requests: list[str] = []

    def answer(text: str) -> str:
        requests.append(text)
        return "Perhaps Bob." if len(requests) == 1 else reasoning

    chat = model(answer)
    report = await run("reasoning_actions", tmp_path / "a.jsonl", n=9, chat=chat, questions=str(tmp_path / "q.jsonl"))
    assert list(report.dropped) == ([reason] if reason else [])
    draft, refined = requests
    assert "all bridges" not in draft and "all bridges" in refined and "Perhaps Bob." in refined
    for row in rows(tmp_path / "a.jsonl"):
        request, reply = (message["content"] for message in row["messages"])
        assert "Who built it?" in request and "- It is a bridge." in request and reply == reasoning


async def test_reasoning_on_a_held_out_question_is_dropped(tmp_path: Path) -> None:
    write_json_lines([QUESTION], tmp_path / "q.jsonl")
    write_json_lines([{"question": "Who built it?", "reward_model": {"ground_truth": "x"}}], tmp_path / "val.jsonl")
    chat = model(lambda text: "It is a bridge.\nFINAL ANSWER: Ann Lee")
    options = {"chat": chat, "questions": str(tmp_path / "q.jsonl"), "against": [tmp_path / "val.jsonl"]}
    report = await run("reasoning_actions", tmp_path / "a.jsonl", n=1, **options)
    assert (report.rows, report.dropped) == (0, {"repeats another row (exact)": 1})


async def test_questions_on_one_long_text_are_different_rows(tmp_path: Path) -> None:
    text = " ".join(f"Bridge {number} crosses river {number * 7}." for number in range(60))
    questions = [f"Which river does bridge {number} cross?" for number in range(3)]
    write_json_lines(
        [{**QUESTION, "question": q, "knowledge": text} for q in [*questions, questions[0]]], tmp_path / "q.jsonl"
    )
    chat = model(lambda text: "It is a bridge.\nFINAL ANSWER: Ann Lee")
    report = await run("reasoning_actions", tmp_path / "a.jsonl", n=9, chat=chat, questions=str(tmp_path / "q.jsonl"))
    assert [row["question"] for row in rows(tmp_path / "a.jsonl")] == questions
    assert report.dropped == {"repeats another row (exact)": 1}


@pytest.mark.parametrize("answer", [0, 1931, 2.5])
async def test_an_answer_may_be_a_number(tmp_path: Path, answer: float) -> None:
    write_json_lines([{**QUESTION, "answer": answer}], tmp_path / "q.jsonl")
    chat = model(lambda text: f"So it is.\nFINAL ANSWER: {answer}")
    report = await run("reasoning_actions", tmp_path / "a.jsonl", n=1, chat=chat, questions=str(tmp_path / "q.jsonl"))
    assert report.dropped == {}


async def test_reasoning_needs_knowledge_and_an_answer(tmp_path: Path) -> None:
    for missing in ("knowledge", "answer"):
        record: dict[str, Any] = {key: value for key, value in QUESTION.items() if key != missing}
        write_json_lines([record], tmp_path / "q.jsonl")
        with pytest.raises(DataError, match="knowledge" if missing == "knowledge" else "ground_truth"):
            await run(
                "reasoning_actions", tmp_path / "a.jsonl", n=1, chat=model(str), questions=str(tmp_path / "q.jsonl")
            )
