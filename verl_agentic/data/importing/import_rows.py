"""Makes rows of the records of a published data set, and counts the records that are left out."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Message
from verl_agentic.data.importing.formats import FORMATS, Format, Reader
from verl_agentic.data.importing.source_records import choose_column, find_value, iter_records
from verl_agentic.data.making.maker import RefusedError
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.graders.code.task_prompts import WITH_TESTS, WITHOUT_TESTS
from verl_agentic.graders.maths.boxed_math import truth_problem

_BOX = r"Put the final answer into \boxed{}."
_WRAPPED = re.compile(
    r"Solve the following math problem step by step\. The last line of your response should be of the form "
    r"Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\.\s*(.*?)\s*"
    r'Remember to put your answer on its own line after "Answer:"\.',
    re.DOTALL,
)
"""The prompt around the questions of DAPO-Math-17k. It asks for a form of answer that `python_math` does not score."""


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """Choices of an import."""

    question: str | None = None
    """Column of the question; None: one that the format names."""
    answer: str | None = None
    """Column of the answer or the tests."""
    public_tests: int = 0
    """Number of tests of a programming task that the policy may run; the others score."""
    max_tests: int | None = None
    """Maximum number of tests that score, those with the longest inputs; None: all."""


@dataclass(kw_only=True)
class Imported:
    """Rows, and the records that are none."""

    rows: list[EnvRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason -> number of records."""
    examples: dict[str, str] = field(default_factory=dict)
    """Reason -> the first such record, with details."""


def import_rows(name: str, sources: Sequence[Path], settings: ImportSettings) -> Imported:
    """Returns the rows of some files in a format; a question that was read before is left out.

    Each row is checked as far as its environment can be made, and its ground truth as far as an answer can meet it.

    Raises:
        ConfigError: options that the format does not use, or a wrong folder.
        DataError: a file cannot be read or lacks a column.
    """
    form = FORMATS[name]
    if form.env != "code_tests" and (settings.public_tests or settings.max_tests):
        raise ConfigError(f"--public-tests and --max-tests are for programming tasks, got the format {name}; drop them")
    check = _checker_of(form.env, env_config(name, settings))
    imported, seen = Imported(), set[bytes]()
    for place, record, question_column, answer_column, reader in _iter_with_columns(form, sources, settings):
        try:
            question = _read_question(find_value(record, question_column))
            key = hashlib.sha256(question.encode(errors="replace")).digest()
            if key in seen:
                raise RefusedError("the question repeats an earlier one")
            answer = reader(find_value(record, answer_column), record)
            row = _BUILDERS[form.env](question, answer, record, settings)
            row = replace(row, data_source=name, extra={"task_id": f"{name}-{key.hex()[:12]}", **row.extra})
            check(row)
        except RefusedError as refused:
            reason = str(refused).partition(":")[0]
            imported.left_out[reason] += 1
            imported.examples.setdefault(reason, f"{place}: {refused}")
            continue
        seen.add(key)
        imported.rows.append(row)
    return imported


def env_config(name: str, settings: ImportSettings) -> dict[str, Any]:
    """Returns the arguments of `make_env` that the rows of a format need.

    Starter code of LeetCode, which APPS and LiveCodeBench have, names `List` without an import.
    """
    if FORMATS[name].env != "code_tests":
        return {}
    return {"prelude": True, "run_tests": settings.public_tests > 0}


def _iter_with_columns(
    form: Format, sources: Sequence[Path], settings: ImportSettings
) -> Iterator[tuple[str, Mapping[str, Any], str, str, Reader]]:
    """Yields records with the columns of their file and the reader of the answer."""
    questions = (settings.question,) if settings.question else form.question
    answers = (settings.answer,) if settings.answer else tuple(form.answer)
    first_reader = next(iter(form.answer.values()))
    for source in sources:
        columns: tuple[str, str] | None = None
        for place, record in iter_records(source):
            columns = columns or (
                choose_column(record, questions, option="--question", place=place),
                choose_column(record, answers, option="--answer", place=place),
            )
            yield place, record, *columns, form.answer.get(columns[1], first_reader)


def _checker_of(env: str, config: Mapping[str, Any]) -> Callable[[EnvRow], None]:
    """Returns a function that refuses rows whose environment cannot be made, or whose answer nobody can give."""
    make_env = load_env_package(env).configured(config)

    def check(row: EnvRow) -> None:
        try:
            "".join([*(message.content for message in row.prompt), str(row.ground_truth)]).encode()
        except UnicodeEncodeError as error:
            raise RefusedError(f"a text that UTF-8 cannot hold: {error}") from error
        try:
            make_env(row)
        except DataError as error:
            raise RefusedError(f"{env} does not take the row: {error}") from error
        if env == "python_math" and (problem := truth_problem(row.ground_truth)):
            raise RefusedError(f"no answer can be right: {problem}")

    return check


def _read_question(value: Any) -> str:
    """Returns the text of a question, or of a prompt with one message, without what DAPO-Math-17k has around it."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0].get("content")
    if not isinstance(value, str) or not value.strip():
        raise RefusedError(f"no question: {str(value)[:80]!r}")
    text = value.strip()
    wrapped = _WRAPPED.fullmatch(text)
    return wrapped[1] if wrapped else text


def _build_maths(question: str, answer: str, record: Mapping[str, Any], settings: ImportSettings) -> EnvRow:
    return EnvRow(prompt=(Message("user", f"{question}\n\n{_BOX}"),), ground_truth=answer)


def _build_search(question: str, answer: Any, record: Mapping[str, Any], settings: ImportSettings) -> EnvRow:
    """Ends the question with `?`, as Search-R1's script does (`qa_search_train_merge.py`)."""
    text = question if question.endswith("?") else f"{question}?"
    return EnvRow(prompt=(Message("user", text),), ground_truth=answer)


def _build_code(question: str, tests: dict[str, Any], record: Mapping[str, Any], settings: ImportSettings) -> EnvRow:
    num_public, fn_name = settings.public_tests, tests["fn_name"]
    cases = list(zip(tests["inputs"], tests["outputs"], strict=True))
    if len(cases) <= num_public:
        raise RefusedError(f"too few tests: {len(cases)}")
    hidden = cases[num_public:]
    if settings.max_tests is not None:
        hidden = sorted(hidden, key=lambda case: len(str(case[0])), reverse=True)[: settings.max_tests]
    parts = [question]
    if isinstance(starter := record.get("starter_code"), str) and starter.strip():
        parts.append(f"Start from this code:\n```python\n{starter.strip()}\n```")
    if fn_name and fn_name not in "\n".join(parts):
        parts.append(f"Write the function {fn_name}.")
    public = {"public_tests": _dump_tests(cases[:num_public], fn_name)} if num_public else {}
    return EnvRow(
        prompt=(
            Message("system", WITH_TESTS if num_public else WITHOUT_TESTS),
            Message("user", "\n\n".join(parts)),
        ),
        ground_truth=_dump_tests(hidden, fn_name),
        extra=public,
    )


def _dump_tests(cases: Sequence[tuple[Any, Any]], fn_name: str | None) -> str:
    inputs, outputs = [case[0] for case in cases], [case[1] for case in cases]
    return json.dumps({"inputs": inputs, "outputs": outputs, "fn_name": fn_name})


_BUILDERS: Mapping[str, Callable[..., EnvRow]] = {
    "python_math": _build_maths,
    "search_qa": _build_search,
    "code_tests": _build_code,
}
"""Environment -> function question, answer, record, settings -> row without name."""
