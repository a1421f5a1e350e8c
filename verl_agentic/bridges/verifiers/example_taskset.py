"""The example: a taskset of verifiers with a harness of its own. It knows nothing of training."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Iterator
from typing import Any

vf: Any = importlib.import_module("verifiers.v1")
__all__ = ["GuessHarness", "GuessTaskset"]
_HIGHEST, _GUESSES = 1_000, 12
_PROMPT = f"Guess my number from 1 to {_HIGHEST}. Answer with a number alone. You have {_GUESSES} guesses."


class GuessData(vf.TaskData):
    """A secret number."""

    secret: int


class GuessTask(vf.Task[GuessData]):
    """Find the number."""

    @vf.reward
    async def found(self, trace: Any) -> float:
        """Returns 1 if the last guess is right."""
        return float(_guess_of(trace.last_reply) == self.data.secret)

    @vf.metric
    async def num_guesses(self, trace: Any) -> float:
        """Returns the number of guesses."""
        return float(trace.num_turns)


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    """One game for each number."""

    def load(self) -> Iterator[GuessTask]:
        """Yields the games."""
        for secret in random.Random(0).sample(range(1, _HIGHEST + 1), _HIGHEST):
            yield GuessTask(GuessData(prompt=_PROMPT, secret=secret), self.config.task)


class GuessHarness(vf.Harness[vf.HarnessConfig]):
    """The game loop: it answers each guess with a hint."""

    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: GuessData
    ) -> Any:
        """Plays until the number is found or no guess is left."""
        openai = importlib.import_module("openai")
        messages: list[dict[str, Any]] = [{"role": "user", "content": data.prompt}]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            for _ in range(_GUESSES):
                answer = await client.chat.completions.create(model=ctx.model, messages=messages)
                text = answer.choices[0].message.content or ""
                guess = _guess_of(text)
                if guess == data.secret:
                    break
                hint = "Not a number." if guess is None else "Higher." if guess < data.secret else "Lower."
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": hint}]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def _guess_of(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*\d{1,9}\s*", text, re.ASCII) else None
