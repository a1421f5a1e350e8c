"""A judge that values a turn of a conversation, for tree search and pairs of steps.

```python
# critic.py, for `evaluate --tree 4 --q critic.py:critic` and `data export --critic critic.py:critic`
from verl_agentic.graders.judge.turn_critic import TurnCritic

critic = TurnCritic(endpoint="http://127.0.0.1:8001/v1", models=["judge"])
```

Paper: https://arxiv.org/abs/2408.07199 (Agent Q, section 4: AI critique of the turns of a state)

Deviations: each turn is judged alone, with a value; the paper's critic ranks the turns of a state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verl_agentic.base.errors import ScoringError
from verl_agentic.base.types import Message, StopReason
from verl_agentic.graders.judge.judge_verdict import Item
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import rule
from verl_agentic.rewards.sample import Sample, Turn

PROMISING = Item(
    name="promising",
    question="The work is not finished, and the final answer is its newest turn. How much closer to a complete and "
    "correct solution does this turn bring it?",
    scale=10,
)


class TurnCritic:
    """A critic with the options of the component `judge`; its only item is `PROMISING`, unless there are others."""

    def __init__(self, **options: Any) -> None:
        """Reads the options. Raises ConfigError if one is wrong."""
        self._options = JudgeOptions.from_mapping({"items": [PROMISING], **options})

    async def __call__(self, messages: Sequence[Message], text: str) -> float:
        """Returns the value of a turn, from 0 to 1.

        Args:
            messages: the conversation before it.
            text: of the turn.

        Raises:
            ScoringError: the judges gave no verdict.
        """
        ruling = await rule(self._options.blocks(_make_sample(messages, text)), self._options)
        if ruling.value is None:
            reason = ruling.failures[0] if ruling.failures else "no majority"
            raise ScoringError(f"the judges gave no verdict on a turn: {reason}; repeat the command")
        return ruling.value


def _make_sample(messages: Sequence[Message], text: str) -> Sample:
    """Returns a conversation and its newest turn as a sample, whose final answer is that turn."""
    first = next((place for place, message in enumerate(messages) if message.role == "assistant"), len(messages))
    turns: list[Turn] = []
    for message in messages[first:]:
        if message.role == "assistant":
            calls = [f"{call.name}({json.dumps(dict(call.arguments), default=str)})" for call in message.tool_calls]
            written = "\n".join([*filter(None, [message.content]), *calls])
            turns.append(Turn(index=len(turns), text=written, content=written))
        else:
            turns[-1] = replace(turns[-1], observations=(*turns[-1].observations, message.content))
    return Sample(
        id="turn",
        prompt=tuple(messages[:first]),
        turns=tuple(turns),
        final_answer=text,
        stop_reason=StopReason.ANSWERED,
    )
