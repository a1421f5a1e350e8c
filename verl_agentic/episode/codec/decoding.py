"""Token ids to text, exactly as they were sampled, and the tokens between two texts."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

_REMEMBERED_TOKENS = 1_000_000
"""Most tokens whose texts one decoder keeps."""
_decoders: weakref.WeakKeyDictionary[Any, TokenDecoder] = weakref.WeakKeyDictionary()


class TokenDecoder:
    """Decodes token ids, special tokens included and nothing cleaned up. Safe to call from threads.

    It remembers the texts of the last million tokens: a turn is decoded for its parser, and once more for the audit
    and the log at the end of its episode.
    """

    def __init__(self, decode: Callable[[list[int]], str], *, max_tokens: int = _REMEMBERED_TOKENS) -> None:
        self._decode = decode
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._texts: dict[tuple[int, ...], str] = {}
        self._lock = threading.Lock()

    def __call__(self, token_ids: Sequence[int]) -> str:
        """Returns the text of the ids."""
        key = tuple(token_ids)
        text = self._texts.get(key)
        if text is None:
            text = self._decode(list(key))
            with self._lock:
                self._remember_text(key, text)
        return text

    def _remember_text(self, key: tuple[int, ...], text: str) -> None:
        if key in self._texts or len(key) > self._max_tokens:
            return
        self._texts[key] = text
        self._num_tokens += len(key)
        while self._num_tokens > self._max_tokens:
            oldest = next(iter(self._texts))
            del self._texts[oldest]
            self._num_tokens -= len(oldest)


def exact_decoder(tokenizer: Any) -> TokenDecoder:
    """Returns the decoder of a tokenizer, one for all that ask for it.

    transformers converts every id on its own before it decodes, which takes longer than the decoding. So a tokenizer
    whose `decode` is the library's own is asked without that.
    """
    if (decoder := _decoders.get(tokenizer)) is None:
        decoder = _decoders[tokenizer] = TokenDecoder(_make_decoder(tokenizer))
    return decoder


def _make_decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    methods = (getattr(type(tokenizer), name, None) for name in ("decode", "_decode"))
    is_own = all(getattr(m, "__module__", "").startswith("transformers.tokenization_utils") for m in methods)
    if backend is not None and is_own:
        return lambda ids: backend.decode(ids, skip_special_tokens=False)
    reference = weakref.ref(tokenizer)  # a decoder that held its tokenizer would keep both for ever

    def decode(ids: list[int]) -> str:
        alive = reference()
        assert alive is not None
        return alive.decode(ids, clean_up_tokenization_spaces=False)

    return decode


def tokens_between(tokenizer: Any, token_ids: Sequence[int], opening: str, closing: str) -> list[tuple[int, int]]:
    """Returns the `[start, end)` offsets of the tokens between `opening` and `closing`, at every place.

    Tokens that hold a part of one of the two texts are not among them. Where the closing text is missing, all tokens
    to the end are.
    """
    ids = list(token_ids)
    text = tokenizer.decode(ids)
    reach = _Reach(tokenizer, ids)
    spans, start = [], text.find(opening)
    while start >= 0:
        begin = start + len(opening)
        closed_at = text.find(closing, begin)
        end = closed_at if closed_at >= 0 else len(text)
        first = bisect_left(reach, begin)
        last = bisect_right(reach, end) - 1
        if first < last:
            spans.append((first, last))
        start = text.find(opening, end) if closed_at >= 0 else -1
    return spans


class _Reach(Sequence[int]):
    """At `k`: how many characters the first `k` tokens hold completely. Never falls, so it can be searched."""

    def __init__(self, tokenizer: Any, token_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = token_ids

    def __len__(self) -> int:
        return len(self._ids) + 1

    def __getitem__(self, count: Any) -> Any:
        # A character that is not complete yet decodes to a placeholder, with some tokenizers to one for each byte.
        return len(self._tokenizer.decode(self._ids[:count]).rstrip("\ufffd"))
