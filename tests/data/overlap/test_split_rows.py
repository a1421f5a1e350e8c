"""A split: rows that repeat each other, directly or through a third one, stay on one side."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_agentic.data.overlap.split_rows import choose_sft, rates_of_rows
from verl_agentic.log.files.record_files import write_json_lines

_RNG = random.Random(0)
_VOCABULARY = ["".join(_RNG.choices("abcdefghij", k=6)) for _ in range(5_000)]


def row(words: list[str], truth: str = "1", **extra: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": " ".join(words)}]
    return {"prompt": prompt, "reward_model": {"ground_truth": truth}, "extra_info": extra}


def sides(tmp_path: Path, rows: list[dict[str, Any]], seed: int, share: float = 0.5) -> np.ndarray:
    write_json_lines(rows, tmp_path / "all.jsonl")
    return choose_sft(tmp_path / "all.jsonl", share=share, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_row_that_nearly_equals_two_others_keeps_all_three_together(tmp_path: Path, seed: int) -> None:
    rows = []
    for _ in range(30):
        text = _RNG.choices(_VOCABULARY, k=200)
        early, late = ([*text[:place], "changed", *text[place + 1 :]] for place in (50, 150))
        rows += [row(early), row(late), row(text)]  # similarities of 0.87 with the last, of 0.76 between the others
    triples = sides(tmp_path, rows, seed).reshape(30, 3)
    assert (triples.all(axis=1) | ~triples.any(axis=1)).all() and 0 < triples.sum() < 90


def test_a_row_without_answer_stays_with_all_rows_of_its_prompt(tmp_path: Path) -> None:
    rows = []
    for _ in range(30):
        text = _RNG.choices(_VOCABULARY, k=5)
        rows += [row(text, "1"), row(text, "2"), row(text, "")]
    triples = sides(tmp_path, rows, seed=0).reshape(30, 3)
    assert (triples.all(axis=1) | ~triples.any(axis=1)).all() and 0 < triples.sum() < 90


def test_a_task_with_more_rows_than_the_share_leaves_room_for_others(tmp_path: Path) -> None:
    copied = row(_RNG.choices(_VOCABULARY, k=30))
    rows = [copied] * 20 + [row(_RNG.choices(_VOCABULARY, k=30)) for _ in range(20)]
    for seed in range(5):
        is_sft = sides(tmp_path, rows, seed, share=0.3)
        assert is_sft.sum() == 12 and not is_sft[:20].any()


def test_rates_belong_to_tasks_that_are_numbered_from_0_or_named_within_extra_json(tmp_path: Path) -> None:
    write_json_lines([row(["a"], task_id=0), row(["b"], extra_json='{"task_id": 1}')], tmp_path / "all.jsonl")
    records = [{"task_id": str(task), "is_void": False, "acc": float(task)} for task in (0, 1) for _ in range(2)]
    assert rates_of_rows(tmp_path / "all.jsonl", records).tolist() == [0, 1]
