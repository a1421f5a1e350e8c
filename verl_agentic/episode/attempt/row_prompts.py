"""Prompts of rows that continue an episode with another conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Action, NewRow, SegmentKind
from verl_agentic.episode.codec.codec import Codec

Known = Iterable[tuple[Sequence[Action], Sequence[Trajectory]]]
"""Turns and rows of each attempt of the episode."""


async def encode_row(new: NewRow, codec: Codec, attempts: Known) -> list[int]:
    """Returns the prompt of a new row. The tokens of `new.after` and of all before it are not encoded again."""
    stream = None if new.after is None else _stream_up_to(new.after, attempts)
    if stream is None:
        return await codec.encode_prompt(new.messages, new.tools)
    shared, added = new.messages[: new.num_shared], new.messages[new.num_shared :]
    edit = await codec.encode_context(shared, added, stream=stream, tools=new.tools)
    return [*stream[: len(stream) - edit.removed], *edit.token_ids]


def _stream_up_to(action: Action, attempts: Known) -> list[int] | None:
    """Returns the tokens of the row with a turn, up to and with that turn."""
    for actions, rows in attempts:
        if not any(other is action for other in actions):
            continue
        for row in rows:
            ends = [s.end for s in row.segments() if s.turn == action.turn and s.kind is SegmentKind.MODEL]
            if ends:
                return [*row.prompt_ids, *row.response_ids[: ends[-1]]]
    return None
