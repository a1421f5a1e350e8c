"""Texts of token ids, remembered for a while."""

from __future__ import annotations

import gc
import weakref

from verl_agentic.episode.codec.decoding import TokenDecoder, exact_decoder


class Tokenizer:
    """A fake that spells ids and counts how often it is asked."""

    def __init__(self) -> None:
        self.num_calls = 0

    def decode(self, ids: list[int], clean_up_tokenization_spaces: bool = True) -> str:
        assert not clean_up_tokenization_spaces
        self.num_calls += 1
        return " ".join(map(str, ids))


def test_a_turn_is_decoded_once_for_all_that_ask_for_its_text():
    tokenizer = Tokenizer()
    assert exact_decoder(tokenizer)([1, 2]) == exact_decoder(tokenizer)((1, 2)) == "1 2"
    assert tokenizer.num_calls == 1


def test_the_oldest_texts_are_forgotten_and_long_ones_never_kept():
    asked: list[list[int]] = []

    def decode(ids: list[int]) -> str:
        asked.append(ids)
        return str(ids)

    decoder = TokenDecoder(decode, max_tokens=4)
    for ids in ([1, 2], [3, 4], [5], [3, 4], [5], [1, 2], [6] * 5, [6] * 5):
        assert decoder(ids) == str(ids)
    assert asked == [[1, 2], [3, 4], [5], [1, 2], [6] * 5, [6] * 5]


def test_a_decoder_keeps_no_tokenizer_alive():
    tokenizer = Tokenizer()
    exact_decoder(tokenizer)([1])
    reference = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert reference() is None
