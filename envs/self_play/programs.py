"""Tasks about programs, as in Absolute Zero: predict an output (deduction), or find arguments (abduction)."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Literal

from verl_agentic import EnvRow, Message
from verl_agentic.base.text.python_source import parse_python
from verl_agentic.data.proposer_env import InvalidProposalError, Proposal, ProposerEnv, SelfPlay
from verl_agentic.graders.code.extract_program import extract_code
from verl_agentic.sandbox.interface import Command, Limits, Runner

Mode = Literal["deduction", "abduction"]
_LIMITS = Limits(wall_s=10.0, cpu_s=5, memory_mb=512, output_bytes=4_096)
_MAX_LITERAL_CHARS = 600
_MAX_PROGRAM_CHARS = 5_600  # as in the scripts of Absolute Zero: content_max_length
_MODULES = frozenset({"bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "re", "string"})
_BANNED = frozenset(
    {"__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit", "getattr", "globals", "hash", "id",
     "input", "locals", "memoryview", "object", "open", "print", "quit", "setattr", "type", "vars"}
)  # fmt: skip
_SEEDS = ("1", "2")
"""Hash seeds of two runs, so that an output which depends on the order of a set differs."""
_HARNESS = """
import ast, json, sys
job = json.load(sys.stdin)
scope = {"__name__": "program"}
exec(compile(job["program"], "program", "exec"), scope)
print(json.dumps(repr(scope["f"](*ast.literal_eval(job["arguments"])))))
"""
_INPUT = re.compile(r"```input[ \t]*\n(.*?)\n?```", re.DOTALL)
_FENCE = re.compile(r"```\w*[ \t]*\n(.*?)\n?```", re.DOTALL)


def literal(text: str) -> Any:
    """Returns the value of a Python literal. Raises ValueError if the text is none, or too long."""
    tree = parse_python(text.strip()) if len(text) <= _MAX_LITERAL_CHARS else None
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        raise ValueError(f"not a literal: {text[:80]!r}")
    return ast.literal_eval(tree.body[0].value)


async def output_of(program: str, arguments: str, runner: Runner, *, hash_seed: str = _SEEDS[0]) -> str | None:
    """Returns `repr(f(*arguments))`, run in a sandbox; None if it fails or the output is no literal."""
    job = json.dumps({"program": program, "arguments": f"({arguments},)"}).encode()
    command = Command(argv=["python3", "-c", _HARNESS], stdin=job, env={"PYTHONHASHSEED": hash_seed})
    result = await runner.run(command, limits=_LIMITS)
    try:
        output = str(json.loads(result.stdout)) if result.ok else ""
        literal(output)
    except ValueError:
        return None
    return output


async def is_right(task: dict[str, Any], mode: str, answer: str, runner: Runner) -> bool:
    """Returns whether an answer is the output of a task (deduction), or arguments that lead to it (abduction)."""
    fenced = _FENCE.findall(answer)
    answer = (fenced[-1] if fenced else answer).strip()
    try:
        expected = literal(task["output"])
        if mode == "deduction":
            return _are_equal(literal(answer), expected)
        if answer.startswith("f(") and answer.endswith(")"):
            answer = answer[2:-1]
        literal(f"({answer},)")
    except ValueError:
        return False
    output = await output_of(task["program"], answer, runner)
    return output is not None and _are_equal(literal(output), expected)


def _normalize_program(program: str) -> str:
    """Returns a program without comments and layout; empty if it does not parse."""
    tree = parse_python(program)
    return "" if tree is None else ast.unparse(tree)


def _are_equal(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other


def refusal(program: str) -> str:
    """Returns why a program cannot be a task; empty if it can. It must be deterministic and touch nothing outside."""
    tree = parse_python(program, compiles=True) if len(program) <= _MAX_PROGRAM_CHARS else None
    if tree is None:
        return "the program does not compile, or is too long"
    if not any(isinstance(node, ast.FunctionDef) and node.name == "f" for node in tree.body):
        return "the program does not define f"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if not set(names) <= _MODULES:
                return f"the program imports {names}; only {sorted(_MODULES)} are allowed"
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in _BANNED or name.startswith("__"):
            return f"the program uses {name}"
    return ""


def solve_row(task_id: str, mode: str, *, program: str, arguments: str, output: str) -> EnvRow:
    """Returns the solver's row of a task."""
    clue = f"f({arguments})" if mode == "deduction" else output
    request = (
        f"What does this call return?\n\n{clue}\n\nThink it through, then give the value as a Python literal, in one "
        "fenced block."
        if mode == "deduction"
        else f"Find arguments for which f returns this value:\n\n{clue}\n\nThink it through, then give the arguments "
        "as Python literals, separated by commas, in one fenced block."
    )
    return EnvRow(
        prompt=(Message("user", f"```python\n{program}\n```\n\n{request}"),),
        ground_truth={"program": program, "arguments": arguments, "output": output},
        data_source="self_play_code",
        extra={"task_id": task_id, "kind": "code", "role": "solve", "mode": mode},
    )


class ProgramProposer(ProposerEnv):
    """Verifies a program and its arguments: allowed names only, and the same literal output in two runs."""

    def __init__(self, row: EnvRow, runner: Runner, *, settings: SelfPlay) -> None:
        super().__init__(row, settings=settings)
        self._runner = runner

    async def verify(self, answer: str) -> Proposal:
        """Returns the solver's task."""
        program, inputs = extract_code(answer, fn_name="f"), _INPUT.findall(answer)
        if program is None or not inputs:
            raise InvalidProposalError("it lacks a block of python or of input", is_well_formed=False)
        program, arguments = program.strip(), inputs[-1].strip()
        reason = refusal(program)
        if not reason and _normalize_program(program) in map(
            _normalize_program, _FENCE.findall(self.row.prompt[-1].content)
        ):
            reason = "it is the program of the prompt"
        try:
            literal(f"({arguments},)")
        except ValueError:
            reason = reason or "the input is not a list of Python literals"
        if reason:
            raise InvalidProposalError(reason, is_well_formed=True)
        first, second = [await output_of(program, arguments, self._runner, hash_seed=seed) for seed in _SEEDS]
        if first is None or first != second:
            reason = "the program failed, or its output is no literal" if first is None else "two runs differ"
            raise InvalidProposalError(reason, is_well_formed=True)
        mode = self.row.extra["mode"]
        return Proposal(row=solve_row("proposed", mode, program=program, arguments=arguments, output=first))

    async def is_right(self, proposal: Proposal, answer: str) -> bool:
        """Returns whether the answer is right, as for rows of the solver."""
        return await is_right(proposal.row.ground_truth, proposal.row.extra["mode"], answer, self._runner)
