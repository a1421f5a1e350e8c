"""The solution as a policy: the weakness by its name, arguments of an attack, or the reference patch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message
from verl_agentic.episode.env_package import load_env_package


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that solves a row."""
    if row.extra["kind"] == "patch":
        solve = load_env_package("swe").gold
        assert solve is not None
        return solve(row)
    answer = str(row.ground_truth) if row.extra["kind"] == "find" else json.dumps(row.extra["attack"])
    return lambda messages: Message("assistant", answer)
