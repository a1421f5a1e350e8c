"""Runs of makers with a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_agentic.data.making.make_data import MakingReport, make_data
from verl_agentic.data.making.maker import load_maker
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.log.files.record_files import read_json_lines


class FakeModel(ChatModel):
    """Answers by a function of the last message."""

    async def ask(self, messages: Any) -> Any:
        from verl_agentic.graders.models.client import Reply

        return Reply(text=_ANSWERS[self.model](messages[-1].content))


_ANSWERS: dict[str, Any] = {}


def model(answer: Any) -> FakeModel:
    _ANSWERS["m"] = answer
    return FakeModel(url="http://none/v1", model="m")


async def run(
    name: str, out: Path, *, n: int, chat: Any = None, against: Any = (), cover: int | None = None, **options: Any
) -> MakingReport:
    maker = load_maker(name, options)
    return await make_data(maker, out, seed=0, n=n, settings=options, model=chat, against=against, cover=cover)


def rows(path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_json_lines(path)]
