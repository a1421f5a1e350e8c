"""Questions from files of benchmarks: GAIA, BrowseComp, question-answer lists, and open questions with criteria.

| format | columns | |
|---|---|---|
| `gaia` | `task_id`, `Question`, `Level`, `Final answer`, `file_name` | rows with a file are left out |
| `browsecomp` | `problem`, `answer`, `canary` | encrypted with the canary, decrypted in memory only |
| `qa` | `question`, and `answer` or `golden_answers` | such as FictionalHot |
| `criteria` | `question` or `query`, and `rubric` or `criteria` | such as Open-Travel, Open-DeepResearch |

Papers: https://arxiv.org/abs/2311.12983 (GAIA), https://arxiv.org/abs/2504.12516 (BrowseComp)
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verl_agentic import DataError
from verl_agentic.log.files.record_files import numbered_records

logger = logging.getLogger(__name__)
Format = Literal["gaia", "browsecomp", "qa", "criteria"]


@dataclass(frozen=True, kw_only=True)
class FileQuestion:
    """A question of a file."""

    id: str
    text: str
    answers: tuple[str, ...]
    """Right answers; for open questions, the criteria as one text."""
    level: str = ""


def read_questions(path: str, form: Format) -> list[FileQuestion]:
    """Returns the questions of a file: CSV, JSON, JSON lines or parquet.

    Raises:
        DataError: the file cannot be read, a column is missing, or a row is malformed.
    """
    records = _read_records(Path(path))
    questions, without = [], 0
    for place, record in enumerate(records):
        try:
            question = _READERS[form](record, place)
        except DataError as cause:
            raise DataError(f"{path}, row {place}: {cause}") from cause
        questions += [question] if question else []
        without += question is None
    if without:
        logger.warning("%s: left out %d of %d questions, which need a file", path, without, len(records))
    if not questions:
        raise DataError(f"{path} must have questions, got {len(records)} rows without any; see the format {form!r}")
    return questions


def decrypt(text: str, password: str) -> str:
    """Returns the text of base64 that is combined with repeated SHA-256 of a password by XOR.

    Raises:
        DataError: it is not such a text.
    """
    key = hashlib.sha256(password.encode()).digest()
    try:
        mixed = base64.b64decode(text, validate=True)
        return bytes(byte ^ key[place % len(key)] for place, byte in enumerate(mixed)).decode()
    except ValueError as cause:
        raise DataError(f"problem and answer must be encrypted with the canary, got {text[:40]!r}: {cause}") from cause


def _read_gaia(record: Mapping[str, Any], place: int) -> FileQuestion | None:
    question, answer = _read_text(record, "Question"), _read_text(record, "Final answer")
    if answer == "?":
        raise DataError("an answer of GAIA's test split is hidden, got '?'; use the split `validation`")
    if record.get("file_name"):
        return None
    name, level = str(record.get("task_id") or place), str(record.get("Level") or "")
    return FileQuestion(id=f"gaia-{name}", text=question, answers=(answer,), level=level)


def _read_browsecomp(record: Mapping[str, Any], place: int) -> FileQuestion:
    canary = _read_text(record, "canary")
    question, answer = (decrypt(_read_text(record, name), canary) for name in ("problem", "answer"))
    return FileQuestion(id=f"browsecomp-{place}", text=question, answers=(answer,))


def _read_qa(record: Mapping[str, Any], place: int) -> FileQuestion:
    value: Any = _read_first(record, "golden_answers", "answers", "answer")
    value = value.tolist() if hasattr(value, "tolist") else value
    answers = [value] if isinstance(value, str | int | float) else value
    if not isinstance(answers, list | tuple) or not answers or not all(str(answer).strip() for answer in answers):
        raise DataError(f"answers must be a text or a list of texts, got {value!r}")
    return FileQuestion(
        id=f"qa-{record.get('id', place)}", text=_read_text(record, "question"), answers=tuple(map(str, answers))
    )


def _read_criteria(record: Mapping[str, Any], place: int) -> FileQuestion:
    value: Any = _read_first(record, "rubric", "rubrics", "criteria")
    value = value.tolist() if hasattr(value, "tolist") else value
    criteria = (
        value if isinstance(value, str) else "\n".join(f"- {_format_criterion(criterion)}" for criterion in value)
    )
    text = str(_read_first(record, "question", "query", "prompt"))
    return FileQuestion(id=f"open-{record.get('id', place)}", text=text, answers=(criteria,))


def _format_criterion(criterion: Any) -> str:
    return criterion if isinstance(criterion, str) else json.dumps(criterion, ensure_ascii=False)


_READERS: Mapping[Format, Callable[[Mapping[str, Any], int], FileQuestion | None]] = {
    "gaia": _read_gaia, "browsecomp": _read_browsecomp, "qa": _read_qa, "criteria": _read_criteria,
}  # fmt: skip


def _read_text(record: Mapping[str, Any], column: str) -> str:
    return str(_read_first(record, column))


def _read_first(record: Mapping[str, Any], *columns: str) -> Any:
    """Returns the value of the first of several columns that has one."""
    for column in columns:
        value = record.get(column)
        if value is not None and str(value).strip():
            return value
    raise DataError(f"a row must have the column {' or '.join(columns)}, got {sorted(map(str, record))}")


def _read_records(path: Path) -> list[dict[str, Any]]:
    if path.suffix not in (".csv", ".json", ".jsonl", ".parquet"):
        raise DataError(f"a file of questions is .csv, .json, .jsonl or .parquet, got {path}; convert it")
    try:
        if path.suffix == ".parquet":
            records = [record for _, record in numbered_records(path)]
        elif path.suffix in (".jsonl", ".json"):
            content = path.read_text(encoding="utf-8")
            records = json.loads(content) if path.suffix == ".json" else list(map(json.loads, _iter_lines(content)))
        else:
            import pandas

            records = pandas.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    except (OSError, ValueError) as cause:
        raise DataError(f"cannot read a file of questions, got {path}: {cause}; name a local file") from cause
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{path} must hold a list of JSON objects, got {type(records).__name__}; convert it")
    return records


def _iter_lines(content: str) -> Iterable[str]:
    return (line for line in content.split("\n") if line.strip())
