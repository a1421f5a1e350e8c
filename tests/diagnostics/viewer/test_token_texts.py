"""Texts of single tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from verl_agentic.observe.viewer.token_texts import find_tokenizer, token_texts


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    return Tokenizer.from_file(str(tiny_model / "tokenizer.json"))


def test_any_text_comes_back_whole(tokenizer: Any) -> None:
    @given(st.text(max_size=40), st.text(max_size=10))
    def check(text: str, before: str) -> None:
        ids, context = (tokenizer.encode(t, add_special_tokens=False).ids for t in (text, before))
        texts = token_texts(tokenizer, ids, before=context)
        assert len(texts) == len(ids)
        assert "".join(t or "" for t in texts) == text

    check()


def test_bytes_of_no_character_lose_nothing_of_their_neighbours(tokenizer: Any) -> None:
    @given(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=30))
    def check(ids: list[int]) -> None:
        texts = token_texts(tokenizer, ids)
        assert "".join(t or "" for t in texts).replace("\ufffd", "") == tokenizer.decode(
            ids, skip_special_tokens=False
        ).replace("\ufffd", "")

    check()


def test_a_character_stands_at_the_token_that_completes_it(tokenizer: Any) -> None:
    ids = tokenizer.encode("a日b", add_special_tokens=False).ids
    assert len(ids) == 5, "the tiny model writes this character as three bytes"
    assert token_texts(tokenizer, ids) == ["a", "", "", "日", "b"]


def test_a_character_that_never_ends_is_shown_at_the_last_token(tokenizer: Any) -> None:
    ids = tokenizer.encode("a日", add_special_tokens=False).ids[:-1]
    texts = token_texts(tokenizer, ids)
    assert texts[:2] == ["a", ""] and set(texts[2] or "") == {"\ufffd"}


def test_special_tokens_are_shown(tokenizer: Any) -> None:
    ids = tokenizer.encode("<|im_end|>x").ids
    assert token_texts(tokenizer, ids) == ["<|im_end|>", "x"]


def test_an_id_that_the_tokenizer_does_not_know_has_no_text_and_hides_nothing(tokenizer: Any) -> None:
    size = tokenizer.get_vocab_size()
    ids = tokenizer.encode("ab日", add_special_tokens=False).ids
    known = token_texts(tokenizer, ids)
    assert token_texts(tokenizer, [size + 5, *ids, size]) == [None, *known, None]
    assert token_texts(None, ids) == [None] * len(ids)


def test_words_that_begin_with_a_space_keep_it() -> None:
    words = Tokenizer(models.WordLevel({"▁the": 0, "▁cat": 1, "s": 2}, unk_token="s"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    assert token_texts(words, [0, 1, 2, 1], before=[0]) == [" the", " cat", "s", " cat"]


def test_the_tokenizer_nearest_to_the_top_is_read_and_a_broken_one_is_passed_over(
    tmp_path: Path, tokenizer: Any
) -> None:
    assert find_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text('{"cut": ')
    assert find_tokenizer(tmp_path) is None
    deeper = tmp_path / "deeper" / "tokenizer"
    deeper.mkdir(parents=True)
    tokenizer.save(str(deeper / "tokenizer.json"))
    found = find_tokenizer(tmp_path)
    assert found is not None and found.get_vocab_size() == tokenizer.get_vocab_size()
