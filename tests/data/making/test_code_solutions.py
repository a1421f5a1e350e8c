"""`data make code_solutions`: text solutions become conversations whose code runs and whose answer is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from maker_runs import model, rows, run

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.datasets.conversation_rows import with_ids
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.verl.rollout.model_codec import load_codec

TASK = {"question": "What is 12*12, plus 1?", "answer": "145", "solution": "12*12 is 144. Plus 1 is 145."}
CODED = (
    "First the product.\n<code>\n```python\nprint(12*12)\n```\n</code>\n<interpreter>\n144\n</interpreter>\n"
    "Then the sum.\n<code>print(144 + 1)</code>\nSo it is \\boxed{145}."
)


async def make(folder: Path, *solutions: str, chat: Any = None, **changes: Any) -> Any:
    write_json_lines([{**TASK, **changes, "solution": text} for text in solutions], folder / "s.jsonl")
    return await run("code_solutions", folder / "a.jsonl", n=9, chat=chat, source=str(folder / "s.jsonl"))


async def test_a_model_rewrites_a_solution_and_the_interpreter_gives_the_outputs(tmp_path: Path) -> None:
    requests: list[str] = []
    report = await make(tmp_path, TASK["solution"], chat=model(lambda text: requests.append(text) or CODED))
    assert report.rows == 1 and TASK["question"] in requests[0] and TASK["solution"] in requests[0]
    (row,) = rows(tmp_path / "a.jsonl")
    assert [message["role"] for message in row["messages"]] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert [m["content"].strip() for m in row["messages"] if m["role"] == "tool"] == ["144", "145"]
    codes = [call["function"]["arguments"]["code"] for m in row["messages"] for call in m.get("tool_calls") or ()]
    assert codes == ["print(12*12)", "print(144 + 1)"]
    assert row["messages"][-1]["content"] == "So it is \\boxed{145}."


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("solution", "changes", "reason"),
    [
        (CODED, {}, None),
        (CODED.replace("\n144\n", "\n143\n"), {}, "another output"),
        (CODED.replace("12*12", "12*missing"), {}, "code fails"),
        (CODED.replace("<interpreter>", "It prints\n<interpreter>"), {}, "code or an output outside of a step"),
        (CODED.replace("So it", "<code>print(145) So it"), {}, "code or an output outside of a step"),
        (CODED.replace("145", "0").replace("144 + 1", "0"), {"answer": 0}, None),
        (
            CODED,
            {"prompt": [{"role": role, "content": "1+1?"} for role in ("user", "assistant", "user")]},
            "the prompt has messages of the assistant",
        ),
        (CODED, {"answer": "146"}, "another answer"),
        (CODED.replace("\\boxed{145}", "145"), {}, "another answer"),
        ("", {}, "no solution or no answer"),
        (CODED, {"answer": "a text that says nothing of the number at all"}, "an answer that nobody can give"),
    ],
)
async def test_solutions_that_do_not_hold_are_refused(
    tmp_path: Path, solution: str, changes: dict[str, Any], reason: str | None
) -> None:
    report = await make(tmp_path, solution, **changes)
    assert list(report.dropped) == ([reason] if reason else [])
    assert report.rows == (reason is None)


async def test_a_solution_without_code_needs_a_model_that_writes_some(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        await make(tmp_path / "a", TASK["solution"])
    report = await make(tmp_path / "b", TASK["solution"], chat=model(lambda text: "It is \\boxed{145}."))
    assert report.dropped == {"no code": 1}


async def test_files_of_gsm8k_have_solution_and_answer_in_one_column(tmp_path: Path) -> None:
    write_json_lines([{"question": TASK["question"], "answer": f"{CODED}\n#### 145"}], tmp_path / "s.jsonl")
    report = await run("code_solutions", tmp_path / "a.jsonl", n=1, source=str(tmp_path / "s.jsonl"))
    (row,) = rows(tmp_path / "a.jsonl")
    assert report.rows == 1 and "####" not in row["messages"][-1]["content"]


async def test_rows_have_the_ids_of_retools_protocol(tmp_path: Path, tiny_model: Path) -> None:
    coded = CODED.replace("First the product.", "<think>First the product.</think>")
    await make(tmp_path, coded.replace("\\boxed{145}", "<answer>\n\\boxed{145}\n</answer>"))
    tokenizer, codec = load_codec(str(tiny_model), protocol="retool")
    (row,) = await with_ids(rows(tmp_path / "a.jsonl"), codec=codec, tokenizer=tokenizer, shape="sft")
    assert not isinstance(row, str), row
    pairs = list(zip(row["input_ids"], row["loss_mask"], strict=True))
    trained, shown = (tokenizer.decode([token for token, bit in pairs if bit == kind]) for kind in (1, 0))
    assert "<code>\n```python\nprint(12*12)\n```\n</code>" in trained and "\\boxed{145}" in trained
    assert "<think>First the product.</think>" in trained and trained.count("<answer>") == 1
    assert trained.count("</answer>") == 1 and trained.endswith("</answer>")
    assert "<interpreter>\n144" in shown and "144\n</interpreter>" not in trained
