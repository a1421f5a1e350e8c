"""Stop texts over tokens that do not end where the texts do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from verl_agentic.cpu.inference.stop_text import StopFilter, tokens_before_stop


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


class Dropping(Pieces):
    """Drops the space at the beginning of a text, as tokenizers with a dummy prefix do."""

    def decode(self, ids: list[int]) -> str:
        return super().decode(ids).removeprefix(" ")


class Cleaning(Pieces):
    """Removes the space before a point."""

    clean_up_tokenization_spaces = True

    def decode(self, ids: list[int]) -> str:
        return super().decode(ids).replace(" .", ".")


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", [Pieces, Dropping, Cleaning])
def test_the_filter_leaves_out_no_token_that_completes_a_text(kind: type[Pieces]) -> None:
    rng = random.Random(0)
    pieces: list[str | bytes] = [
        "a",
        "b",
        "ab",
        "ba",
        " ",
        " a",
        " b",
        "é",
        b"\xc3",
        b"\xa9",
        b"\xa9a",
        b"b\xc3",
        ".",
        " .",
    ]
    stops = [("ab",), ("é", "bb"), (" ",), ("aé", "b a"), (" a",), ("b.", "a.")]
    tokenizer = kind(*pieces)
    stop_filter = StopFilter(tokenizer, vocab_size=len(pieces))
    keys = np.array([stop_filter.add_stops(stop) for stop in stops])
    num_found = 0
    for _ in range(400):
        ids: list[int] = []
        while len(ids) < 12:
            ids.append(rng.randrange(len(pieces)))
            candidates = stop_filter.find_candidates(keys, np.full(len(stops), ids[-1]))
            for row, stop in enumerate(stops):
                before = len(ids) > 1 and tokens_before_stop(tokenizer, ids[:-1], stop) is not None
                if not before and tokens_before_stop(tokenizer, ids, stop) is not None:
                    num_found += 1
                    assert row in candidates, (kind, stop, ids)
    assert num_found > 500


def test_rows_without_a_candidate_are_not_decoded() -> None:
    calls: list[list[int]] = []

    class Counting(Pieces):
        def decode(self, ids: list[int]) -> str:
            calls.append(ids)
            return super().decode(ids)

    stop_filter = StopFilter(Counting("a", "b", "c>"), vocab_size=3)
    keys = np.array([stop_filter.add_stops(("</a>",)), 0, stop_filter.add_stops(("<b>",))])
    for step in range(50):
        assert stop_filter.find_candidates(keys, np.array([step % 2, 2, step % 2])).size == 0
    assert stop_filter.find_candidates(keys, np.array([2, 2, 0])).tolist() == [0]
    assert len(calls) == 3  # every id once, though it was sampled often and by two rows


def test_any_number_of_different_texts_takes_bounded_memory() -> None:
    stop_filter = StopFilter(Pieces("a", "b"), vocab_size=2)
    keys = np.array(
        [stop_filter.add_stops((chr(200 + number),)) for number in range(500)] + [stop_filter.add_stops("a")]
    )
    assert keys.max() < 100
    assert 500 in stop_filter.find_candidates(keys, np.zeros(501, dtype=int))
