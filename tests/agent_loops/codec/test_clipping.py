"""Caps on observations: counted in the policy's own tokens, with a marker where something is missing."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
from fakes import CharTokenizer
from hypothesis import assume, given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError
from verl_agentic.episode.codec.clipping import KEEPS, Keep, clip

Chat = tuple[Any, Any]
MARKER = re.compile(r"\[\.\.\. (?:about )?(\d+) tokens cut \.\.\.\]")


class Counting(CharTokenizer):
    """Remembers how much text it was given."""

    def __init__(self) -> None:
        self.chars = 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.chars += len(text)
        return super().encode(text, add_special_tokens=add_special_tokens)


def text_of(tokenizer: Any, tokens: int) -> str:
    """Returns a text of exactly so many tokens."""
    ids = tokenizer.encode("".join(f"{i} words and é, " for i in range(tokens)))[:tokens]
    text = tokenizer.decode(ids)
    assert len(tokenizer.encode(text)) == tokens
    return text


@pytest.mark.sample(1)
@pytest.mark.parametrize("keep", KEEPS)
def test_an_observation_of_501_tokens_is_cut_to_500_and_a_marker(model_chat: Chat, keep: Keep) -> None:
    tokenizer, _ = model_chat
    text = text_of(tokenizer, 501)
    clipped, is_cut = clip(text, max_tokens=500, keep=keep, tokenizer=tokenizer)
    assert is_cut and MARKER.findall(clipped) == ["1"]
    parts = [part for part in MARKER.split(clipped)[::2] if part]
    assert sum(len(tokenizer.encode(part.strip("\n"))) for part in parts) <= 500
    ids = tokenizer.encode(text)
    head, tail = {"head": (500, 0), "tail": (0, 500), "middle": (250, 250)}[keep]
    expected = [tokenizer.decode(ids[:head])] * bool(head) + [tokenizer.decode(ids[501 - tail :])] * bool(tail)
    expected = [part.strip("\ufffd") for part in expected]  # the cut may go through a character
    assert [part.removeprefix("\n").removesuffix("\n") for part in parts] == expected


@pytest.mark.sample(1)
@pytest.mark.parametrize("keep", KEEPS)
def test_an_observation_of_500_tokens_stays_as_it_is(model_chat: Chat, keep: Keep) -> None:
    tokenizer, _ = model_chat
    text = text_of(tokenizer, 500)
    assert clip(text, max_tokens=500, keep=keep, tokenizer=tokenizer) == (text, False)


@pytest.mark.parametrize(
    ("keep", "clipped"),
    [
        ("head", "0123\n[... 6 tokens cut ...]"),
        ("tail", "[... 6 tokens cut ...]\n6789"),
        ("middle", "01\n[... 6 tokens cut ...]\n89"),
    ],
)
def test_what_is_kept_is_the_head_the_tail_or_both_ends(keep: Keep, clipped: str) -> None:
    assert clip("0123456789", max_tokens=4, keep=keep, tokenizer=CharTokenizer()) == (clipped, True)


def test_characters_of_several_tokens_are_counted_as_such_and_never_halved(tiny_chat: Chat) -> None:
    tokenizer, _ = tiny_chat
    text = "🙂" * 400  # four tokens each
    clipped, is_cut = clip(text, max_tokens=502, keep="middle", tokenizer=tokenizer)
    # 251 tokens at each end hold 62 whole characters and three quarters of one more.
    assert is_cut and clipped == "🙂" * 62 + "\n[... 1098 tokens cut ...]\n" + "🙂" * 62


def test_signs_for_broken_characters_stay_where_nothing_was_cut() -> None:
    text = "\ufffd" + "x" * 20 + "\ufffd"
    clipped, _ = clip(text, max_tokens=4, keep="middle", tokenizer=CharTokenizer())
    assert clipped == "\ufffdx\n[... 18 tokens cut ...]\nx\ufffd"


def test_halves_of_surrogate_pairs_are_replaced_because_nothing_can_encode_them(tiny_chat: Chat) -> None:
    tokenizer, _ = tiny_chat
    assert clip("a\ud800b", max_tokens=500, keep="middle", tokenizer=tokenizer) == ("a?b", False)
    assert clip("\udfff" * 3, max_tokens=1, keep="head", tokenizer=tokenizer) == ("?\n[... 2 tokens cut ...]", True)


@pytest.mark.parametrize("keep", KEEPS)
def test_of_a_long_text_only_the_ends_are_encoded(keep: Keep) -> None:
    tokenizer = Counting()
    clipped, is_cut = clip("x" * 10_000_000, max_tokens=100, keep=keep, tokenizer=tokenizer)
    assert is_cut and tokenizer.chars < 2_000
    (cut,) = MARKER.findall(clipped)
    assert int(cut) == 10_000_000 - 100 and "about" in clipped


def test_ten_megabytes_are_cut_quickly_and_about_as_many_tokens_are_said_to_be_missing(model_chat: Chat) -> None:
    tokenizer, _ = model_chat
    line = "a line of a log with numbers 12345, é and 你好\n"
    text = line * (10_000_000 // len(line))
    began = time.process_time()
    clipped, _ = clip(text, max_tokens=500, keep="middle", tokenizer=tokenizer)
    assert time.process_time() - began < 1.0  # all of it takes more than ten times as long
    per_line = len(tokenizer.encode(line * 50)) / 50
    (cut,) = MARKER.findall(clipped)
    assert int(cut) == pytest.approx(per_line * (10_000_000 // len(line)), rel=0.05)


def test_texts_of_few_long_tokens_are_not_mixed_up() -> None:
    class Words(CharTokenizer):
        """A token is 100 characters long, so that the first look at a text sees too few of them."""

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [ord(text[at]) for at in range(0, len(text), 100)]

        def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool = True) -> str:
            return "".join(chr(i) * 100 for i in token_ids)

    text = "".join(chr(ord("A") + i % 26) * 100 for i in range(1_000))
    clipped, _ = clip(text, max_tokens=50, keep="head", tokenizer=Words())
    assert clipped.startswith(text[:5_000] + "\n[... about ")
    clipped, _ = clip(text, max_tokens=50, keep="tail", tokenizer=Words())
    assert clipped.endswith(" tokens cut ...]\n" + text[-5_000:])


def test_a_cap_of_nothing_leaves_the_marker() -> None:
    assert clip("0123456789", max_tokens=0, keep="middle", tokenizer=CharTokenizer()) == (
        "[... 10 tokens cut ...]",
        True,
    )
    assert clip("", max_tokens=0, keep="middle", tokenizer=CharTokenizer()) == ("", False)


pieces = st.one_of(st.text(max_size=8), st.sampled_from(["<|im_end|>", "🙂🙂", "\ud800", "    "]))


@given(text=st.lists(pieces, max_size=40), max_tokens=st.integers(0, 40), keep=st.sampled_from(KEEPS))
def test_no_part_is_invented_and_no_more_is_kept_than_allowed(
    model_chat: Chat, text: list[str], max_tokens: int, keep: Keep
) -> None:
    tokenizer, _ = model_chat
    whole = "".join(text).encode("utf-8", "replace").decode()
    assume(tokenizer.decode(tokenizer.encode(whole)) == whole)  # SmolLM2 drops the bytes that it has no tokens for
    clipped, is_cut = clip("".join(text), max_tokens=max_tokens, keep=keep, tokenizer=tokenizer)
    if not is_cut:
        assert clipped == whole and len(tokenizer.encode(whole)) <= max_tokens
        return
    head, cut, tail = MARKER.split(clipped)
    assert whole.startswith(head.removesuffix("\n")) and whole.endswith(tail.removeprefix("\n"))
    assert len(tokenizer.encode(whole)) == max_tokens + int(cut)
    assert {"head": not tail, "tail": not head, "middle": True}[keep]


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="'front'"):
        clip("x", max_tokens=1, keep="front", tokenizer=CharTokenizer())  # type: ignore[arg-type]
