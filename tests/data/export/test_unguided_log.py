"""Guided attempts are written behind the prompt without guidance, and make pairs with unguided ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_logs import PROMPT, log_row

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.export.export_run import Exported, ExportOptions, export_run
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.reader import write_run

GUIDED_PROMPT = [*PROMPT, 40, 41]


def guided(session: int, acc: float, **columns: Any) -> dict[str, Any]:
    numbers = {"guided": 1.0}
    return log_row(session, [([10 + session], [])], acc=acc, prompt_ids=GUIDED_PROMPT, numbers=numbers, **columns)


def export(folder: Path, log: list[dict[str, Any]], **options: Any) -> tuple[Exported, list[dict[str, Any]]]:
    run = write_run(folder / "run", trajectories=log)
    numbers = export_run(run, folder / "out.parquet", ExportOptions(**{"drop_guidance": True, **options}))
    return numbers, [record for _, record in numbered_records(folder / "out.parquet")]


LOG = [log_row(0, [([10], [])], acc=0.0), guided(1, 1.0), guided(2, 0.0)]


def test_the_reattempt_has_guidance_in_the_log_and_none_in_the_trained_prompt(tmp_path: Path) -> None:
    _, records = export(tmp_path / "a", LOG, shape="sft", where="acc >= 1")
    assert [record["input_ids"] for record in records] == [[*PROMPT, 11]]
    assert records[0]["loss_mask"] == [0] * len(PROMPT) + [1] and records[0]["guided"]
    _, records = export(tmp_path / "b", LOG, shape="sft", where="acc >= 1", drop_guidance=False)
    assert [record["input_ids"] for record in records] == [[*GUIDED_PROMPT, 11]]


def test_a_guided_success_and_an_unguided_failure_are_a_pair(tmp_path: Path) -> None:
    _, (pair,) = export(tmp_path, LOG[:2], shape="pairs")
    assert (pair["prompt_ids"], pair["chosen_ids"], pair["rejected_ids"]) == (PROMPT, [11], [10])


def test_the_prompt_may_come_from_another_step(tmp_path: Path) -> None:
    earlier = log_row(0, [([9], [])], acc=0.0, uid="f", task_id="task g", step=1)
    _, records = export(tmp_path, [earlier, guided(1, 1.0, step=2)], shape="sft", where="guided")
    assert [record["input_ids"] for record in records] == [[*PROMPT, 11]]


def test_guided_attempts_without_an_unguided_prompt_or_with_several_rows_are_left_out(tmp_path: Path) -> None:
    other = log_row(0, [([9], [])], acc=1.0, uid="h")
    several = [guided(3, 1.0, place="earlier"), guided(3, 1.0, index=1)]
    numbers, records = export(tmp_path, [other, guided(1, 1.0)], shape="sft")
    assert [record["uid"] for record in records] == ["h"]
    assert [count for reason, count in numbers.left_out.items() if reason.startswith("guided")] == [1]
    numbers, records = export(tmp_path / "several", [LOG[0], *several], shape="sft")
    assert [record["session"] for record in records] == [0]


def test_guided_and_unguided_attempts_count_as_attempts_at_one_prompt(tmp_path: Path) -> None:
    texts = ["Q", "Q Hint 1.", "Q Hint 2."]
    prompts = [[{"role": "user", "content": text}] for text in texts]
    log = [LOG[0] | {"prompt": prompts[0]}, *(guided(number, 1.0, prompt=prompts[number]) for number in (1, 2))]
    numbers, records = export(tmp_path, log, shape="sft", per_prompt=2)
    assert [record["session"] for record in records] == [0, 1]
    assert numbers.left_out == {"beyond --per-prompt": 1}


def test_rows_keep_the_prompt_of_their_log_probs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="drop_guidance"):
        export(tmp_path, LOG, shape="rows")
