"""Answers with programs that are known to be right or wrong, in the styles that people and models write."""

# ruff: noqa: E501 - a program in one line is easier to read than one in several texts
from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy
from code_problems import PROBLEMS, Problem
from code_special import RIGHT, RIGHT_FUNCTIONS, WRONG, WRONG_FUNCTIONS
from code_styles import STYLES

from verl_agentic.base.types import StopReason
from verl_agentic.graders.code.code_answer import CodeOptions, run_answer
from verl_agentic.rewards.sample import Sample
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend, NamespaceConfig
from verl_agentic.sandbox.interface import Command, Limits, Runner
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool


@dataclass(frozen=True, kw_only=True)
class Program:
    """An answer, and whether the program in it is right."""

    style: str
    name: str
    answer: str
    tests: Mapping[str, Any]
    is_right: bool
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the component `code_tests`."""
    needs: str = ""
    """A module or a program that the sandbox must have."""

    def __str__(self) -> str:
        return f"{self.style}/{self.name}\n{self.answer}"


_OTHER = "#include <iostream>\nint main() { std::cout << 42; }"
_DRAFT = "import sys\nprint('draft')\nsys.exit(0)"
# {0} is the program; {1} the first input, {2} the first output.
_TEXTS = {
    "python": "```python\n{0}\n```",
    "py": "Here you go:\n\n```py\n{0}\n```\nDone.",
    "python3": "```python3\n{0}\n```",
    "upper_case_tag": "```Python\n{0}\n```",
    "space_before_tag": "``` python\n{0}\n```",
    "title_in_tag": '```python title="solution.py"\n{0}\n```',
    "braces_in_tag": "```{{.python .numberLines}}\n{0}\n```",
    "pypy": "```pypy3\n{0}\n```",
    "no_tag": "The program:\n```\n{0}\n```",
    "tildes": "~~~python\n{0}\n~~~",
    "four_backticks": "````python\n{0}\n````",
    "never_closed": "Sure.\n```python\n{0}",
    "no_fence": "{0}",
    "sample_output_behind": "```python\n{0}\n```\nFor the input\n```\n{1}\n```\nit prints\n```\n{2}\n```",
    "sample_input_before": "Input:\n```text\n{1}\n```\n\n```python\n{0}\n```",
    "shell_before": "```bash\npython3 solution.py < input.txt\n```\n```python\n{0}\n```",
    "shell_behind": "```python\n{0}\n```\nRun it:\n```sh\npython3 solution.py < input.txt\n```",
    "other_language_before": f"In C++:\n```cpp\n{_OTHER.replace('{', '{{').replace('}', '}}')}\n```\nIn Python:\n```python\n{{0}}\n```",
    "other_language_behind": f"```python\n{{0}}\n```\nThe same in C++:\n```cpp\n{_OTHER.replace('{', '{{').replace('}', '}}')}\n```",
    "json_before": '```json\n{{"input": 1}}\n```\n```python\n{0}\n```',
    "draft_before": f"First try:\n```python\n{_DRAFT}\n```\nThat prints a draft. Better:\n```python\n{{0}}\n```",
    "reasoning_before": f"<think>Maybe\n```python\n{_DRAFT}\n```\nNo.</think>\n```python\n{{0}}\n```",
    "inline_code_around": "Use `pow` and `x = 1`:\n\n```python\n{0}\n```\nIt is `O(n)`.",
    "tags_around": "<answer>\n```python\n{0}\n```\n</answer>",
    "html_details": "<details><summary>Code</summary>\n\n```python\n{0}\n```\n</details>",
    "special_token_behind": "```python\n{0}\n```<|im_end|>",
}


def _texts(program: str, tests: Mapping[str, Any]) -> dict[str, str]:
    first = (str(tests["inputs"][0]).strip(), str(tests["outputs"][0]).strip())
    texts = {name: text.format(program, *first) for name, text in _TEXTS.items()}
    texts["dos_line_ends"] = texts["python"].replace("\n", "\r\n")
    texts["in_a_list"] = "1. Read.\n2. Print:\n\n" + indent(texts["python"], "   ")
    texts["byte_order_mark"] = "\ufeff" + program
    return texts


_FUNCTIONS: dict[str, str] = {
    "function": "IMPORTS\ndef solve(PARAMS):\n    BODY\n    return result",
    "typed_function": "from __future__ import annotations\nIMPORTS\ndef solve(PARAMS) -> object:\n    BODY\n    return result",
    "solution_class": "IMPORTS\nclass Solution:\n    def solve(self, PARAMS):\n        BODY\n        return result",
    "solution_with_init": (
        "IMPORTS\nclass Solution(object):\n    def __init__(self):\n        self.cache = {}\n"
        "    def helper(self, PARAMS):\n        BODY\n        return result\n"
        "    def solve(self, *args):\n        return self.helper(*args)"
    ),
    "lambda": "IMPORTS\ndef work(PARAMS):\n    BODY\n    return result\nsolve = lambda *args: work(*args)",
    "nested": "IMPORTS\ndef solve(PARAMS):\n    def inner():\n        BODY\n        return result\n    return inner()",
    "decorated_function": (
        "import functools\nIMPORTS\ndef log(f):\n    @functools.wraps(f)\n    def g(*a):\n        print('called')\n"
        "        return f(*a)\n    return g\n@log\ndef solve(PARAMS):\n    BODY\n    return result"
    ),
    "partial": (
        "import functools\nIMPORTS\ndef work(flag, PARAMS):\n    BODY\n    return result\nsolve = functools.partial(work, True)"
    ),
    "callable_object": (
        "IMPORTS\nclass Work:\n    def __call__(self, PARAMS):\n        BODY\n        return result\nsolve = Work()"
    ),
    "function_and_guard": (
        "IMPORTS\ndef solve(PARAMS):\n    BODY\n    return result\nif __name__ == '__main__':\n    print(solve(*input().split()))"
    ),
    "function_and_noise": "print('loaded')\nIMPORTS\ndef solve(PARAMS):\n    print('solving')\n    BODY\n    return result",
    "method_is_static": "IMPORTS\nclass Solution:\n    @staticmethod\n    def solve(PARAMS):\n        BODY\n        return result",
}


def make_programs(*, rounds: int = 4) -> list[Program]:
    """Returns the corpus, the same each time.

    Args:
        rounds: how many problems each style is used for; every style, text and bug is in the corpus with 1, too.
    """
    programs = [*_right(rounds), *_functions(rounds), *_special(), *_wrong(rounds)]
    assert len({str(program) for program in programs}) == len(programs)
    return programs


def _right(rounds: int) -> Iterator[Program]:
    problems = itertools.cycle(PROBLEMS)
    for _ in range(rounds):
        for style, write in STYLES.items():
            problem = next(problems)
            yield _program(style, problem, write(problem))
        next(problems)  # else a style would see the same few
        for text in _texts("", PROBLEMS[0].tests):
            problem = next(problems)
            program = STYLES["main"](problem).strip("\n")
            yield Program(
                style=f"text_{text}",
                name=problem.name,
                answer=_texts(program, problem.tests)[text],
                tests=problem.tests,
                is_right=True,
            )


def _functions(rounds: int) -> Iterator[Program]:
    problems = itertools.cycle([p for p in PROBLEMS if p.name not in ("mean", "distance")])
    for round_, (style, template) in itertools.product(range(rounds), _FUNCTIONS.items()):
        problem = next(problems)
        yield _program(style, problem, _function(problem, problem.body, template), tests=_calls(problem))
        if round_ == 0:
            bug = problem.bugs[0]
            yield _program(
                style, problem, _function(problem, bug, template), tests=_calls(problem), is_right=False, name="bug"
            )


def _function(problem: Problem, body: str, template: str) -> str:
    lines = []
    for line in template.split("\n"):
        part = {"IMPORTS": problem.imports, "BODY": body}.get(line.strip())
        lines.append(
            line.replace("PARAMS", problem.params) if part is None else indent(part, line[: -len(line.lstrip())])
        )
    return "\n".join(lines)


def _calls(problem: Problem) -> dict[str, Any]:
    """Returns tests that call `solve` with what a program would have read."""
    inputs, outputs = [], []
    for given in problem.inputs:
        lines = iter(given.splitlines())
        names: dict[str, Any] = {"LINE": lambda lines=lines: next(lines)}
        exec(problem.read, names)
        inputs.append([names[name.strip()] for name in problem.params.split(",")])
        outputs.append(problem.reference(given.splitlines()))
    return {"fn_name": "solve", "inputs": inputs, "outputs": outputs}


def _special() -> Iterator[Program]:
    for cases, is_right, is_function in (
        (RIGHT, True, False), (WRONG, False, False), (RIGHT_FUNCTIONS, True, True), (WRONG_FUNCTIONS, False, True)
    ):  # fmt: skip
        for case in cases:
            tests = {"inputs": case.inputs, "outputs": case.outputs} | ({"fn_name": "solve"} if is_function else {})
            program = dedent(case.program).strip("\n")
            yield Program(
                style=case.style,
                name=case.name,
                answer=program if "```" in program or not case.is_fenced else _TEXTS["python"].format(program),
                tests=tests,
                is_right=is_right,
                options=case.options,
                needs=case.needs,
            )


def _wrong(rounds: int) -> Iterator[Program]:
    """Yields every bug, in as many styles as there are rounds up to two."""
    styles = itertools.cycle(STYLES.items())
    for round_ in range(min(rounds, 2)):
        for problem in PROBLEMS:
            for index, bug in enumerate(problem.bugs):
                style, write = next(styles)
                text = write(_with_body(problem, bug))
                yield _program(style, problem, text, is_right=False, name=f"bug {index}.{round_}")


def _with_body(problem: Problem, body: str) -> Problem:
    return Problem(**{**vars(problem), "body": body})


def _program(
    style: str,
    problem: Problem,
    program: str,
    *,
    tests: Mapping[str, Any] | None = None,
    is_right: bool = True,
    name: str = "",
) -> Program:
    return Program(
        style=style,
        name=f"{problem.name} {name}".strip(),
        answer=_TEXTS["python"].format(program.strip("\n")),
        tests=tests or problem.tests,
        is_right=is_right,
    )


@asynccontextmanager
async def sandboxes(size: int = 4) -> AsyncIterator[tuple[SandboxPool, frozenset[str]]]:
    """Yields sandboxes that have numpy, and which of the needs of programs they lack.

    Raises:
        SandboxUnavailableError: this machine cannot make namespaces.
    """
    inside = "/packages"
    shared = [path for name in ("numpy", "numpy.libs") if (path := Path(numpy.__file__).parents[1] / name).exists()]
    config = NamespaceConfig(read_only=[(str(path), f"{inside}/{path.name}") for path in shared], python_path=[inside])
    pool = SandboxPool(NamespaceBackend(config), PoolConfig(size=size, warm=0))
    await pool.start()
    try:
        wanted = sorted({program.needs for program in make_programs(rounds=1)} - {""})
        found = await pool.run(Command(code=_FIND.format(wanted)), limits=Limits(memory_mb=1024))
        yield pool, frozenset(found.stdout.split())
    finally:
        await pool.close()


_FIND = """
import importlib.util, shutil
print(*(name for name in {} if not shutil.which(name) and importlib.util.find_spec(name) is None))
"""


async def is_found_right(program: Program, runner: Runner) -> bool:
    """Returns whether all tests of a program pass."""
    sample = Sample(
        id=program.name,
        prompt=(),
        turns=(),
        final_answer=program.answer,
        stop_reason=StopReason.ANSWERED,
        ground_truth=json.dumps(program.tests),
    )
    report = await run_answer(sample, CodeOptions.of(dict(program.options)), runner=runner)
    return report is not None and bool(report.all_passed)
