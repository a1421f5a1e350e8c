"""Dataset rows: proposers with an example each, and seed tasks for solvers."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Literal

from verl_agentic import ConfigError, EnvRow, Message

from . import programs, questions

Split = Literal["train", "test"]
Role = Literal["both", "propose", "solve"]
TASKS = ("code", "math")
_TEST_SHARE = 0.2
_PROGRAMS = (
    "def f(values):\n    return [value * {a} + {b} for value in values if value % {c} != 0]",
    "def f(values):\n    total = {b}\n    for value in values:\n        total = total * {a} - value\n    return total",
    "def f(values):\n    return sorted(values, key=lambda value: (value % {c}, -value))[:{d}]",
    "def f(values):\n    kept = [value for value in values if value > {b}]\n    return (len(kept), sum(kept) * {a})",
)
_PROPOSE_PROGRAM = """\
Here is a program and its input:

```python
{program}
```

```input
{arguments}
```

Write another program and its input, as a task for a solver who will see {known}. The task should need several steps, \
and the solver should sometimes get it right. Rules: the program defines a function f; it imports standard modules for \
texts, numbers and collections at most; it prints and reads nothing; and it returns the same value every time. Input \
and output are Python literals.

Give the program in a fenced block that begins with ```python, and the arguments of f, separated by commas, in one \
that begins with ```input."""
_KNOWN = {"deduction": "both, and must find the output", "abduction": "program and output, and must find an input"}
_PROPOSE_QUESTION = """\
Here is a question of maths: {question}

Write another one, quite different from this one and hard enough that a good student gets it right about half of the \
time. It has one answer, a number or an expression. Put the question between <question> and </question>, solve it, and \
put your answer within \\boxed{{}}."""


def make_rows(*, split: Split, count: int, seed: int, task: str | None = None, role: Role = "both") -> list[EnvRow]:
    """Returns `count` different rows; equal arguments give equal rows.

    Args:
        split: `train` or `test`.
        count: how many.
        seed: of the choice.
        task: `code`, `math`, or None for both in turn.
        role: `propose`, `solve`, or `both` in turn.

    Raises:
        ConfigError: an unknown task or role.
    """
    if task not in (None, *TASKS) or role not in ("both", "propose", "solve"):
        raise ConfigError(f"task must be one of {TASKS} and role both, propose or solve, got {task!r} and {role!r}")
    kinds = [task] if task else TASKS
    roles = [role] if role != "both" else ["propose", "solve"]
    rows: dict[str, EnvRow] = {}
    rng = random.Random(f"{split}/{seed}")
    while len(rows) < count:
        place = len(rows)
        make = _program_row if kinds[place // len(roles) % len(kinds)] == "code" else _question_row
        row = make(rng, roles[place % len(roles)])
        if _split_of(row) == split:
            rows[row.extra["task_id"]] = row
    return list(rows.values())


def _split_of(row: EnvRow) -> Split:
    share = int.from_bytes(hashlib.blake2b(row.extra["task_id"].encode(), digest_size=4).digest(), "big") / 2**32
    return "test" if share < _TEST_SHARE else "train"


def _draw_program(rng: random.Random) -> dict[str, str]:
    """Returns a program, arguments and the output."""
    program = rng.choice(_PROGRAMS).format(
        a=rng.randint(2, 9), b=rng.randint(1, 30), c=rng.randint(2, 5), d=rng.randint(2, 4)
    )
    values = [rng.randint(1, 60) for _ in range(rng.randint(4, 6))]
    scope: dict[str, Any] = {}
    exec(program, scope)  # a template of this file
    return {"program": program, "arguments": repr(values), "output": repr(scope["f"](values))}


def _program_row(rng: random.Random, role: str) -> EnvRow:
    mode, task = rng.choice(["deduction", "abduction"]), _draw_program(rng)
    task_id = f"code-{role}-{mode}-{_hash_task(task)}"
    if role == "solve":
        return programs.solve_row(task_id, mode, **task)
    request = _PROPOSE_PROGRAM.format(program=task["program"], arguments=task["arguments"], known=_KNOWN[mode])
    return _propose_row(task_id, "code", request, solution=_draw_program(rng), mode=mode)


def _draw_question(rng: random.Random) -> dict[str, str]:
    """Returns a question and its answer."""
    a, b, c, d = rng.randint(12, 99), rng.randint(12, 99), rng.randint(3, 12), rng.randint(13, 60)
    answer = a * c - b if rng.random() < 0.5 else a * c + b
    verb = "removes" if answer == a * c - b else "adds"
    text = f"A box has {c} rows with {a} pens each. Someone {verb} {b} pens. How many pens are in {d} such boxes?"
    return {"question": text, "answer": str(answer * d)}


def _question_row(rng: random.Random, role: str) -> EnvRow:
    task = _draw_question(rng)
    task_id = f"math-{role}-{_hash_task(task)}"
    if role == "solve":
        return questions.solve_row(task_id, task["question"], task["answer"])
    return _propose_row(
        task_id, "math", _PROPOSE_QUESTION.format(question=task["question"]), solution=_draw_question(rng)
    )


def _propose_row(task_id: str, task: str, request: str, **extra: Any) -> EnvRow:
    return EnvRow(
        prompt=(Message("user", request),),
        data_source=f"self_play_{task}_propose",
        extra={"task_id": task_id, "kind": task, "role": "propose", **extra},
    )


def _hash_task(task: dict[str, str]) -> str:
    return hashlib.blake2b(repr(task).encode(), digest_size=6).hexdigest()
