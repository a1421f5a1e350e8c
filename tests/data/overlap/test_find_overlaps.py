"""Duplicates: planted ones are found, others are not, and a shared prompt is none."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.data.overlap import find_overlaps as module
from verl_agentic.data.overlap.find_overlaps import KINDS, Overlaps, find_overlaps
from verl_agentic.data.overlap.ngrams import bands_of, grams_of, similarity
from verl_agentic.data.overlap.shared_span import shared_span
from verl_agentic.data.prepare import to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.record_files import write_json_lines
from verl_agentic.log.files.rows import write_rows

_RNG = random.Random(0)
_VOCABULARY = ["".join(_RNG.choices("abcdefghij", k=6)) for _ in range(5_000)]


def words(count: int, rng: random.Random = _RNG) -> list[str]:
    return rng.choices(_VOCABULARY, k=count)


def row(text: str | Sequence[str], truth: Any = "1", **extra: Any) -> dict[str, Any]:
    content = text if isinstance(text, str) else " ".join(text)
    prompt = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": content}]
    return {
        "data_source": "made",
        "prompt": prompt,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": extra,
    }


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    write_json_lines(rows, path)
    return path


def found_in(overlaps: Overlaps) -> list[tuple[str, int, int]]:
    return [
        (KINDS[overlaps.kinds[one]], overlaps.place(one)[1], overlaps.place(int(overlaps.others[one]))[1])
        for one in overlaps.repeated.tolist()
    ]


def test_a_planted_span_of_13_words_is_found_and_shown(tmp_path: Path) -> None:
    held_out, trained = [words(80) for _ in range(20)], [words(80) for _ in range(200)]
    trained[117][30:43] = held_out[6][50:63]
    trained[118][30:42] = held_out[7][50:62]  # 12 words are too few
    files = [
        write(tmp_path / name, [row(text) for text in texts])
        for name, texts in zip("tv", (trained, held_out), strict=True)
    ]
    overlaps = find_overlaps(files[:1], files[1:])
    assert found_in(overlaps) == [("span", 117, 6)] and len(overlaps.leaked) == 1
    tasks = overlaps.tasks([20 + 117, 6])
    assert shared_span(tasks[137], tasks[6], common=overlaps.common) == " ".join(held_out[6][50:63])


@pytest.mark.slow
def test_random_rows_do_not_overlap(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [row(words(40, rng), str(index)) for index in range(10_000)]
    files = [write(tmp_path / "train.jsonl", rows[:9_000]), write(tmp_path / "val.jsonl", rows[9_000:])]
    assert not len(find_overlaps(files[:1], files[1:]).repeated)


@pytest.mark.parametrize(
    "copy",
    [
        lambda text: text.upper(),
        lambda text: text.replace(" ", ", ") + "!",
        lambda text: text.replace(" ", "—"),
        lambda text: "\n\n".join(f"**{word}**" for word in text.split()),
        lambda text: text.replace("a", "\u200ba"),
        lambda text: text.replace("a", "\uff41"),
        lambda text: text.replace("e", "'e"),
    ],
)
@pytest.mark.parametrize("length", [5, 60])
def test_case_punctuation_and_invisible_characters_hide_nothing(tmp_path: Path, copy: Any, length: int) -> None:
    text = " ".join(words(length))
    files = [write(tmp_path / "train.jsonl", [row(copy(text))]), write(tmp_path / "val.jsonl", [row(text)])]
    assert found_in(find_overlaps(files[:1], files[1:])) == [("exact", 0, 0)]


def test_operators_between_numbers_make_different_tasks(tmp_path: Path) -> None:
    rows = [row(text, "") for text in ("Compute 3 - 5.", "compute 3 + 5", "- Compute: 3-5!")]
    assert found_in(find_overlaps([write(tmp_path / "a.jsonl", rows)])) == [("exact", 2, 0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Balanced? (()())", "Balanced? ((()))"),
        ("Solve the maze:\n# . # .\n. . #", "Solve the maze:\n. . # .\n# . #"),
        ("Is 3 ≤ 5?", "Is 3 ≥ 5?"),
        ("Name it: 🐶", "Name it: 🐱"),
    ],
)
def test_prompts_that_differ_in_a_drawing_or_a_sign_are_different_tasks(tmp_path: Path, one: str, other: str) -> None:
    path = write(tmp_path / "a.jsonl", [row(one, "yes"), row(other, "yes"), row(f"{one.upper()}\n", "yes")])
    assert found_in(find_overlaps([path])) == [("exact", 2, 0)]


def test_long_prompts_of_equal_words_with_other_answers_are_different_tasks(tmp_path: Path) -> None:
    text = " ".join(words(20))
    rows = [row(f"{text}: 3 - 5", "-2"), row(f"{text}: 3 + 5", "8"), row(f"{text}: 3 * 5", "8")]
    assert found_in(find_overlaps([write(tmp_path / "a.jsonl", rows)])) == [("near", 2, 1)], "equal answers are a copy"


def test_examples_in_a_prompt_are_not_the_task_and_a_begun_answer_is_not_part_of_it(tmp_path: Path) -> None:
    def asked(*texts: str) -> dict[str, Any]:
        roles = ("user", "assistant") * 2
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        return {**row(""), "prompt": messages}

    rows = [asked("2+2?", "4", "3+3?"), asked("2+2?", "4", "1+5?"), asked("2+2?", "4", "3+3?", "It is")]
    assert found_in(find_overlaps([write(tmp_path / "a.jsonl", rows)])) == [("exact", 2, 0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (row("Two and two?", 4), row("Two and two?", 4.0)),
        (row("Two and two?", 4), row("Two and two?", "4")),
        (row("Find it.", seed=1, tools={"a": {"x": 1}}), row("Find it.", seed=1.0, tools={"a": {"x": 1}, "b": None})),
    ],
)
def test_what_a_file_format_adds_makes_no_other_task(tmp_path: Path, one: Any, other: Any) -> None:
    files = [write(tmp_path / "train.jsonl", [one]), write(tmp_path / "val.jsonl", [other])]
    assert found_in(find_overlaps(files[:1], files[1:])) == [("exact", 0, 0)]


def test_a_few_changed_words_are_a_near_duplicate(tmp_path: Path) -> None:
    texts = [words(200) for _ in range(50)]
    copies = [[*text] for text in texts[:10]]
    for text in copies:
        text[100] = "changed"  # 13 of 188 grams: a similarity of 175 / 201 = 0.87
    overlaps = find_overlaps([write(tmp_path / "a.jsonl", [row(text) for text in [*texts, *copies]])])
    assert found_in(overlaps) == [("near", 50 + index, index) for index in range(10)]
    for text in copies:
        text[40], text[150] = "changed", "changed"  # 39 grams: 149 / 227 = 0.66
    overlaps = find_overlaps([write(tmp_path / "a.jsonl", [row(text) for text in [*texts, *copies]])])
    assert found_in(overlaps) == []


def test_a_copy_of_a_held_out_row_is_a_leak_even_if_a_training_row_is_more_like_it(tmp_path: Path) -> None:
    held_out = [words(200) for _ in range(20)]
    leaked = [[*text[:100], "changed", *text[101:]] for text in held_out]  # a similarity of 0.87
    others = [[*text[:-12], *words(12)] for text in leaked]  # of 0.88 with the leaked one, of 0.77 with the other
    trained = [row(text) for pair in zip(others, leaked, strict=True) for text in pair]
    files = [write(tmp_path / "train.jsonl", trained), write(tmp_path / "val.jsonl", [row(text) for text in held_out])]
    overlaps = find_overlaps(files[:1], files[1:])
    near = [(one, other) for kind, one, other in found_in(overlaps) if kind == "near"]
    assert near == [(2 * number + 1, number) for number in range(20)] and set(range(20, 60)) == {*overlaps.leaked}


def test_one_prompt_with_other_answers_or_hidden_fields_is_no_duplicate(tmp_path: Path) -> None:
    text = words(30)
    rows = [
        row(text, "1"),
        row(text, "2"),
        row(text, "1", seed=3),
        row(text, "1", task_id="x"),
        row(text, "2", index=9),
    ]
    overlaps = find_overlaps([write(tmp_path / "a.jsonl", rows)])
    assert found_in(overlaps) == [("exact", 3, 0), ("exact", 4, 1)]
    assert overlaps.other_answers == 3


def test_bandits_with_one_prompt_are_different_tasks(tmp_path: Path) -> None:
    package = load_env_package("text_game")
    assert package.make_rows is not None
    rows = package.make_rows(split="train", count=200, seed=0, game="bandit")
    write_rows(rows, tmp_path / "bandits.jsonl")
    overlaps = find_overlaps([tmp_path / "bandits.jsonl"])
    assert len({json.dumps([m.to_dict() for m in one.prompt]) for one in rows}) < 200, "prompts alone are no keys"
    assert found_in(overlaps) == [] and overlaps.other_answers > 0


def test_a_row_without_answer_repeats_every_row_with_its_prompt(tmp_path: Path) -> None:
    text = words(30)
    sft = {"messages": [{"role": "user", "content": " ".join(text)}, {"role": "assistant", "content": "17"}]}
    files = [write(tmp_path / "sft.jsonl", [sft]), write(tmp_path / "rl.jsonl", [row(text, "17", seed=1)])]
    assert found_in(find_overlaps(files[:1], files[1:])) == [("exact", 0, 0)]
    assert found_in(find_overlaps(files[1:], files[:1])) == [("exact", 0, 0)]


def test_templates_do_not_overlap(tmp_path: Path) -> None:
    template = words(60)
    rows = [row([*template, *words(20)], str(index)) for index in range(40)]
    files = [write(tmp_path / "train.jsonl", rows[:20]), write(tmp_path / "val.jsonl", rows[20:])]
    overlaps = find_overlaps(files[:1], files[1:])
    assert found_in(overlaps) == [] and len(overlaps.common) == 48


@pytest.mark.slow
def test_parquet_and_several_processes_give_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = load_env_package("python_math")
    assert package.make_rows is not None
    rows = package.make_rows(split="train", count=60, seed=0)
    records = to_records([*rows, *rows[:5]], env_id="python_math", split="train", agent_name="env_agent")
    write_parquet(records, tmp_path / "a.parquet")
    write(tmp_path / "a.jsonl", records)
    expected = [("exact", 60 + index, index) for index in range(5)]
    assert found_in(find_overlaps([tmp_path / "a.parquet"])) == expected
    monkeypatch.setattr("verl_agentic.data.overlap.chunks._CHUNK_BYTES", 2_000)
    monkeypatch.setattr(module, "_MIN_PARALLEL_CHUNKS", 2)
    overlaps = find_overlaps([tmp_path / "a.jsonl"], jobs=2)
    assert found_in(overlaps) == expected and len(overlaps.chunks) > 8


def test_a_deadline_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_agentic.data.overlap.chunks._CHUNK_BYTES", 1_000)
    path = write(tmp_path / "a.jsonl", [row(words(40)) for _ in range(50)])
    overlaps = find_overlaps([path], budget_s=0)
    assert not overlaps.is_complete and 0 < overlaps.starts[-1] < 50
    assert find_overlaps([path]).is_complete


def test_shared_bands_follow_the_similarity() -> None:
    texts = [words(300) for _ in range(200)]
    copies = [[*text[:-20], *words(20)] for text in texts]  # a similarity of 268 / 308 = 0.87
    (grams, counts), (others, other_counts) = (grams_of(both, list(range(200))) for both in (texts, copies))
    is_found = (bands_of(grams, counts) == bands_of(others, other_counts)).any(axis=1)
    assert is_found.mean() > 0.99
    assert similarity(grams[: counts[0]], others[: counts[0]]) == pytest.approx(268 / 308)
    assert not (bands_of(grams, counts) == np.roll(bands_of(others, other_counts), 1, axis=0)).any()


@pytest.mark.parametrize("line", ['{"answer": 1}', "[]", "{", '{"prompt": 3}'])
def test_rows_without_prompt_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(DataError, match=r"a\.jsonl"):
        find_overlaps([tmp_path / "a.jsonl"])
