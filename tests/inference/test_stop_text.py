"""Stop texts over tokens that do not end where the texts do."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.inference.stop_text import tokens_before_stop


class Pieces:
    """Ids are indices of pieces of bytes."""

    def __init__(self, *pieces: str | bytes) -> None:
        self._pieces = [p.encode() if isinstance(p, str) else p for p in pieces]

    def decode(self, ids: list[int]) -> str:
        return b"".join(self._pieces[i] for i in ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["a", "b"], ["c"], None),
        (["a", "b", "c"], ["c"], 2),
        (["a", "b", "c"], ["bc"], 1),
        (["ab", "cd"], ["bc"], 0),  # the stop text begins and ends inside tokens: both are touched
        (["x", "ab", "cde", "f"], ["bcdef"], 1),
        (["a", "a", "a", "b"], ["ab"], 2),
        (["x", "</", "a", ">"], ["a>", "</a>"], 1),  # of two that end here, the one that begins first
        ([b"\xc3", b"\xa9"], ["é"], 0),
        (["x", b"\xe2\x82", b"\xac", "!"], ["€!"], 1),
    ],
)
def test_every_token_that_the_text_touches_is_counted_off(pieces: list[Any], stop: list[str], expected: int) -> None:
    assert tokens_before_stop(Pieces(*pieces), list(range(len(pieces))), stop) == expected


def test_a_long_generation_is_searched_only_at_its_end() -> None:
    calls: list[int] = []

    class Counting(Pieces):
        def decode(self, ids: list[int]) -> str:
            calls.append(len(ids))
            return super().decode(ids)

    assert tokens_before_stop(Counting("a"), [0] * 10_000, ["zz"]) is None
    assert sum(calls) < 10
