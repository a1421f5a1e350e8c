"""Programming tasks with a reference solution that passes its own tests, as rows of `code_tests`.

The tasks come from a file of KodCode, APPS or TACO, or a model writes them.

Papers: https://arxiv.org/abs/2503.02951 (KodCode: solutions verified by tests)

Deviations: KodCode's tests are pytest functions; of them, the assertions `assert f(literals) == literal` are used.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask_json, needed
from verl_agentic.data.prepare import read_records
from verl_agentic.graders.code.run_tests import CodeTests, run_tests
from verl_agentic.graders.code.task_prompts import WITHOUT_TESTS
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.sandbox.pools.process_pool import shared_pool

_ASKED = (
    "Write programming task number {number} about {topic}. Answer with one JSON object: `question` (the statement, "
    "with the name and arguments of a function), `fn_name`, `solution` (source of the function), `inputs` (at least "
    "{min_tests} lists of arguments, edge cases included) and `outputs` (the result of each, as JSON)."
)


class CodeTasksMaker(Settings):
    """Options."""

    source: str = ""
    """Parquet or JSON lines with `question`, a reference in `solution`, `solutions` or `reference`, and tests in
    `input_output`, `tests` or `test`. Empty: a model writes tasks."""
    topic: str = "strings, lists and dictionaries"
    """Topic of the tasks that a model writes."""
    topics: tuple[str, ...] = ()
    """Topics that take turns in place of `topic`."""
    min_tests: int = setting(5, min=1)
    """Minimum number of different tests (DeepCoder: 5)."""
    test_s: float = setting(2.0, above=0)
    """Maximum time of the reference for one test, in seconds."""
    sandbox: str = "auto"
    """Sandbox backend."""

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields the tasks of the file in order, or tasks of the model."""
        if not self.source:
            chat = needed(model, "code_tasks without a source")
            for number in range(n):
                topic = self._list_topics()[number % len(self._list_topics())]
                yield Candidate(
                    key=f"{seed}-{number}",
                    record=lambda number=number, topic=topic: self._request_task(chat, number + seed, topic),
                )
            return
        for number, task in enumerate(read_records(Path(self.source))[:n]):
            yield Candidate(key=f"{Path(self.source).name}-{number}", record=lambda task=task: _import_task(task))

    async def verify(self, record: Record) -> str | None:
        """Returns why a task is unfit: too few tests, a constant passes, or the reference fails or is too slow."""
        try:
            tests = CodeTests.from_json(record["reward_model"]["ground_truth"])
        except DataError as error:
            return f"malformed tests: {error}"
        if (count := len(set(tests.inputs))) < self.min_tests:
            return f"too few tests: {count} different inputs of {self.min_tests}"
        if len(set(tests.outputs)) < 2:
            return f"a constant passes: every output is {tests.outputs[0][:80]}"
        pool = shared_pool(self.sandbox)
        report = await run_tests(record["extra_info"]["solution"], tests, pool, test_s=self.test_s)
        failed = [index for index, verdict in enumerate(report.verdicts) if verdict != "passed"]
        if not failed:
            return None
        verdicts = {report.verdicts[index] for index in failed}
        head = "the reference is too slow" if verdicts <= {"timeout", "not_run"} else "the reference fails"
        first = failed[0]
        return f"{head}: {len(failed)} of {len(report.verdicts)} tests, the first {report.verdicts[first]} with " + (
            f"{report.outputs[first][:120]!r}"
        )

    def list_cells(self) -> list[str]:
        """Returns the topics of tasks that a model writes, see `CoveringMaker`."""
        return [] if self.source else self._list_topics()

    def find_cells(self, record: Record) -> list[str]:
        """Returns the topic that was asked for."""
        return [record["topic"]]

    async def make_for(
        self, cell: str, rows: Sequence[Record], *, seed: int, number: int, model: ChatModel | None
    ) -> Record:
        """Returns a task of a topic; the model sees those that are there."""
        questions = "\n\n".join(row["prompt"][-1]["content"] for row in rows)
        others = f"\n\nIt must differ from these tasks:\n\n{questions}" if rows else ""
        return await self._request_task(needed(model, "code_tasks"), len(rows) + number + seed, cell, others=others)

    def _list_topics(self) -> list[str]:
        return list(dict.fromkeys(self.topics)) or [self.topic]

    async def _request_task(self, model: ChatModel, number: int, topic: str, *, others: str = "") -> Record:
        prompt = _ASKED.format(number=number, topic=topic, min_tests=self.min_tests)
        return {**await _import_task(await ask_json(model, prompt + others)), "topic": topic}


async def _import_task(task: Any) -> Record:
    """Returns the row of a task. Raises RefusedError if a part of it is missing."""
    if not isinstance(task, Mapping):
        raise RefusedError(f"the task is no object: {str(task)[:80]}")
    question = str(task.get("question") or task.get("problem") or "").strip()
    solution = _pick_solution(task.get("solution") or task.get("reference") or task.get("solutions"))
    if not question or not solution:
        raise RefusedError(f"no question or no reference: the columns are {sorted(task)}")
    tests = _read_tests(task)
    return {
        "data_source": "code_tests",
        "prompt": [{"role": "system", "content": WITHOUT_TESTS}, {"role": "user", "content": question}],
        "reward_model": {"style": "rule", "ground_truth": json.dumps(tests, ensure_ascii=False), "format": "text"},
        "extra_info": {
            "task_id": f"made-{hashlib.sha256(question.encode()).hexdigest()[:10]}",
            "solution": solution,
        },
        "agent_name": "env_agent",
    }


def _pick_solution(value: Any) -> str:
    """Returns a solution, or the first of a list, which may be JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return str(value[0] if isinstance(value, Sequence) and not isinstance(value, str) and value else value or "")


def _read_tests(task: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(task.get("inputs"), list):
        return {key: task.get(key) for key in ("inputs", "outputs", "fn_name")}
    raw_tests = task.get("input_output") or task.get("tests") or task.get("test")
    if isinstance(raw_tests, str) and not raw_tests.lstrip().startswith("{"):
        return _parse_assertions(raw_tests)
    try:
        tests = json.loads(raw_tests) if isinstance(raw_tests, str) else dict(raw_tests or {})
    except ValueError as cause:
        raise RefusedError(f"malformed tests: {str(raw_tests)[:80]}") from cause
    return {key: tests.get(key) for key in ("inputs", "outputs", "fn_name")}


def _parse_assertions(source: str) -> dict[str, Any]:
    """Returns the tests in assertions `assert f(literals) == literal` of one function."""
    inputs, outputs, names = [], [], set()
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError as cause:
        raise RefusedError(f"malformed tests: {cause}") from cause
    for node in nodes:
        test = node.test if isinstance(node, ast.Assert) else None
        if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Call) or test.left.keywords:
            continue
        if not isinstance(test.left.func, ast.Name) or not isinstance(test.ops[0], ast.Eq | ast.Is):
            continue
        try:
            arguments = [ast.literal_eval(argument) for argument in test.left.args]
            expected = ast.literal_eval(test.comparators[0])
            if json.loads(json.dumps([arguments, expected])) != [arguments, expected]:
                continue  # tuples and sets have no form in JSON
        except (ValueError, TypeError):
            continue
        inputs.append(arguments)
        outputs.append(expected)
        names.add(test.left.func.id)
    if len(names) != 1:
        raise RefusedError(f"no assertions of one function: {len(inputs)} of {sorted(names)}")
    return {"inputs": inputs, "outputs": outputs, "fn_name": names.pop()}


MAKER = CodeTasksMaker
