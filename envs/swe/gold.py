"""The reference solution as a policy: it applies the task's patch and submits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall
from verl_agentic.swe.grading.repo_task import RepoTask

_SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that applies the reference patch with git and submits, in any bundled scaffold."""
    patch = RepoTask.from_json(row.extra["task"]).patch

    def next_message(messages: Sequence[Message]) -> Message:
        turn = sum(message.role == "assistant" for message in messages)
        call = _calls_of(messages[0].content, patch)[min(turn, 2)]
        return Message("assistant", "", tool_calls=(call,))

    return next_message


def _calls_of(system: str, patch: str) -> list[ToolCall]:
    """Returns the calls of an episode in the scaffold that has a system message."""
    from .scaffold import load_scaffold

    scaffold = next(
        candidate for candidate in map(load_scaffold, ("bash", "editor", "r2e")) if candidate.system == system
    )
    command = next(tool for tool in scaffold.tools if tool.kind in ("command", "shell"))
    submit = next((tool for tool in scaffold.tools if tool.kind == "submit"), None)
    apply = f"git apply - <<'PATCH_END'\n{patch}PATCH_END\n"
    last = ToolCall(command.name, {command.argument: _SUBMIT}) if submit is None else ToolCall(submit.name, {})
    return [ToolCall(command.name, {command.argument: apply}), last, last]
