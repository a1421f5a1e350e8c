"""Rows from datasets for TRL, rows of the example, and their solution."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, ToolCall


def rows_of(examples: Iterable[Mapping[str, Any]], *, name: str = "trl") -> list[EnvRow]:
    """Returns the rows of a dataset for TRL: mappings with a `prompt` (messages or text) and further columns.

    Environments and reward functions get all columns, which are the ground truth of the row. The values must be plain
    JSON.

    Args:
        examples: such as a `datasets.Dataset`.
        name: the data source, and the beginning of `task_id`.
    """
    return [
        EnvRow(
            prompt=_read_messages(example.get("prompt", "")),
            ground_truth=dict(example),
            data_source=name,
            extra={"task_id": f"{name}-{number}"},
        )
        for number, example in enumerate(examples)
    ]


def make_rows(*, split: str, count: int, seed: int) -> list[EnvRow]:
    """Returns rows of the example: games of 100 numbers. Test games have other secrets than training games.

    Raises:
        ConfigError: `count` is above 10,000.
    """
    secrets = [secret for secret in range(1, 50_001) if (secret % 5 == 0) == (split == "test")]
    if count > 10_000:
        raise ConfigError(f"the example has 10,000 test rows, got count {count}; ask for fewer")
    rng = random.Random(seed)
    games = []
    for secret in rng.sample(secrets, count):
        low = secret - rng.randrange(100)
        prompt = [{"role": "user", "content": "Find the secret number with the tool, then say that you are done."}]
        games.append({"prompt": prompt, "secret": secret, "low": low, "high": low + 99})
    return rows_of(games, name="trl_example")


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that halves the range of the example until it has found the number."""

    def next_message(messages: Sequence[Message]) -> Message:
        low, high = map(int, re.findall(r"-?\d+", messages[0].content))
        guesses = [call.arguments["number"] for message in messages for call in message.tool_calls]
        answers = [message.content for message in messages if message.role == "tool"]
        for number, answer in zip(guesses, answers, strict=True):
            if answer == "right":
                return Message("assistant", "Done.")
            low, high = (number + 1, high) if answer == "too low" else (low, number - 1)
        return Message("assistant", "", tool_calls=(ToolCall("guess", {"number": (low + high) // 2}),))

    return next_message


def _read_messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    return tuple(Message.from_dict(message) for message in prompt)
