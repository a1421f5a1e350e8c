"""Problems as dataset rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.env_card import read_tasks
from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.types import Message
from verl_agentic.bridges.task_rows import Split, draw_rows

from .grading import grade
from .problems import MAX_ROW_S, load_problem

ANSWER_TAG = "answer"
_FORM = f"Give your final answer between <{ANSWER_TAG}> and </{ANSWER_TAG}>."
_TASKS = read_tasks(str(Path(__file__)))


def make_rows(
    *, split: Split, count: int, seed: int, task: str | None = None, answer_form: bool = True, **options: Any
) -> list[EnvRow]:
    """Returns `count` different problems; equal arguments give equal problems.

    Args:
        split: the questions of the two splits are disjoint.
        count: number of rows.
        seed: of the problems.
        task: a generator; None: all of them in turn.
        answer_form: whether the prompt asks for an answer in tags. Set it to False for protocols that do.
        options: of the generator's configuration, such as `min_terms=2`; only with `task`.

    Raises:
        ConfigError: an unknown task or option, or too few different problems.
    """
    if options and task is None:
        raise ConfigError(f"options belong to one generator, got {sorted(options)} without a task; set `task`")
    if {"seed", "size"} & set(options):
        raise ConfigError(f"seed and size of a generator follow from the row, got {options}; leave them out")

    def draw(name: str, number: int) -> EnvRow | None:
        try:
            problem = load_problem(name, number, options)
        except EnvError:
            return None
        if problem.cpu_s > MAX_ROW_S:
            return None
        # Some solutions are empty, so that silence would be right, and some are Integral(...), which are none.
        if grade(name, problem, problem.solution) < 1.0:
            return None
        prompt = f"{problem.question.rstrip()}\n\n{_FORM}" if answer_form else problem.question
        truth = {"task": name, "number": number, "options": options, "answer": problem.solution}
        return EnvRow(
            prompt=(Message("user", prompt),),
            ground_truth=truth,
            data_source="reasoning_gym",
            extra={"task_id": f"{name}-{number}", "task": name},
        )

    return draw_rows(_TASKS, draw, task=task, split=split, count=count, seed=seed)
