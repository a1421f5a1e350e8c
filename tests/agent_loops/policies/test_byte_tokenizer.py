"""Counting by bytes: nothing is lost, and four bytes are a token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.evaluate.policies.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_texts_have_different_ids_and_none_is_the_end(one: str, other: str) -> None:
    ids = TOKENIZER.encode(one)
    assert (ids == TOKENIZER.encode(other)) == (one == other)
    assert TOKENIZER.eos_token_id not in ids and len(ids) == -(-len(one.encode()) // 4)


def test_halves_of_characters_and_foreign_ids_are_shown_as_such() -> None:
    ids = TOKENIZER.encode("abcé")  # the two bytes of the last character stand in different tokens
    assert TOKENIZER.decode(ids[:1]) == "abc\ufffd"
    assert TOKENIZER.decode([5]) == "\ufffd"
    assert TOKENIZER.decode([*TOKENIZER.encode("a"), TOKENIZER.eos_token_id]) == "a"
