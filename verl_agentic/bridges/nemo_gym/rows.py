"""Rows from a NeMo-Gym file of tasks: JSON lines with `responses_create_params` and what the verifier reads."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.types import Message, ToolCall, load_arguments

FILE_VARIABLE = "VERL_AGENTIC_NEMO_GYM_FILE"
_TEST_PART = 5  # a fifth of the tasks is for tests, if the file is split here
_ROLES: Mapping[str, Any] = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}


def make_rows(*, split: str, count: int, seed: int, file: str = "", has_splits: bool = True) -> list[EnvRow]:
    """Returns rows of different tasks of a file.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the choice.
        file: JSON lines of NeMo-Gym; default: that in `VERL_AGENTIC_NEMO_GYM_FILE`.
        has_splits: whether a fifth of the file is kept for `test`; false if the file itself is one split.

    Raises:
        ConfigError: there is no file, an unknown split, or too few tasks.
        DataError: a line is not a task with text.
    """
    file = file or os.environ.get(FILE_VARIABLE, "")
    if split not in ("train", "test"):
        raise ConfigError(f"split must be 'train' or 'test', got {split!r}")
    if not file or not Path(file).is_file():
        raise ConfigError(f"rows of NeMo-Gym need a file of tasks, got {file!r}; set file or {FILE_VARIABLE}")
    lines = [line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    places = [place for place, line in enumerate(lines) if not has_splits or _is_test(line) == (split == "test")]
    if count > len(places):
        raise ConfigError(f"{file} has {len(places)} tasks for {split}, got count={count}; lower it")
    chosen = random.Random(f"{split}/{seed}").sample(places, count)
    return [row_of(lines[place], where=f"{file}:{place + 1}") for place in chosen]


def row_of(line: str, *, where: str) -> EnvRow:
    """Returns the row of a line. The whole task is its ground truth, as the verifier gets all of it.

    Raises:
        DataError: it is not a task with text; the message begins with `where`.
    """
    try:
        task = json.loads(line)
        request_input = task["responses_create_params"]["input"]
        items = [{"role": "user", "content": request_input}] if isinstance(request_input, str) else request_input
        prompt = _read_prompt(items)
    except (ValueError, KeyError, TypeError) as cause:
        raise DataError(
            f"{where} is not a task with text, got {type(cause).__name__}: {cause}; leave it out"
        ) from cause
    return EnvRow(prompt=prompt, ground_truth=task, data_source="nemo_gym")


def _read_prompt(items: list[dict[str, Any]]) -> tuple[Message, ...]:
    """Returns messages of a Responses input, whose calls and results are items of their own."""
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = ToolCall(item["name"], load_arguments(item["arguments"]), item["call_id"])
            messages.append(Message("assistant", "", tool_calls=(call,)))
        elif kind == "function_call_output":
            messages.append(Message("tool", item["output"], call_id=item["call_id"]))
        elif kind == "message":
            messages.append(Message(_ROLES[item["role"]], _read_content(item["content"])))
        else:
            raise ValueError(f"input of type {kind!r} is not supported")
    return tuple(messages)


def _read_content(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _is_test(line: str) -> bool:
    return hashlib.sha256(line.encode()).digest()[0] % _TEST_PART == 0
