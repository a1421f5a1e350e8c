"""Texts of single tokens, from the tokenizer that a run stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTEXT = 6
"""Number of earlier tokens that a text may depend on, for example for a space before a word."""
_LONGEST = 8
"""Maximum tokens of one character; longer byte sequences are invalid."""


def find_tokenizer(run_dir: Path) -> Tokenizer | None:
    """Returns the tokenizer nearest to the top of a run's folder; None if none can be read."""
    from tokenizers import Tokenizer

    paths = sorted(run_dir.rglob("tokenizer/tokenizer.json"), key=lambda path: (len(path.parts), path))
    for path in paths:
        try:
            return Tokenizer.from_file(str(path))
        except Exception:  # the library raises bare exceptions; a broken file must not hide the run
            continue
    return None


def token_texts(
    tokenizer: Tokenizer | None, token_ids: Sequence[int], *, before: Sequence[int] = ()
) -> list[str | None]:
    """Returns the text that every token adds; joined they are the whole text.

    A character of several tokens is at the token that completes it, and the others have an empty text. An id that the
    tokenizer does not know gives None.

    Args:
        tokenizer: None makes every text None.
        token_ids: of the stream.
        before: ids before it.
    """
    if tokenizer is None:
        return [None] * len(token_ids)
    size = tokenizer.get_vocab_size()
    texts: list[str | None] = []
    context = [token for token in before if 0 <= token < size][-_CONTEXT:]
    pending: list[int] = []
    for token in token_ids:
        if not 0 <= token < size or tokenizer.id_to_token(token) is None:
            _flush_pending(tokenizer, context, pending, texts)
            context, pending = [], []
            texts.append(None)
            continue
        pending.append(token)
        text = _decode_added(tokenizer, context, pending)
        if text.endswith("\ufffd") and len(pending) < _LONGEST:
            texts.append("")
            continue
        texts.append(text)
        context, pending = [*context, *pending][-_CONTEXT:], []
    _flush_pending(tokenizer, context, pending, texts)
    return texts


def _flush_pending(tokenizer: Tokenizer, context: list[int], pending: list[int], texts: list[str | None]) -> None:
    """Gives incomplete characters to the last token."""
    if pending:
        texts[-1] = _decode_added(tokenizer, context, pending)


def _decode_added(tokenizer: Tokenizer, context: list[int], pending: list[int]) -> str:
    # Texts are compared, not cut by length: a decoder may render the end of a context differently.
    context_text = tokenizer.decode(context, skip_special_tokens=False)
    whole = tokenizer.decode([*context, *pending], skip_special_tokens=False)
    if whole.startswith(context_text):
        return whole[len(context_text) :]
    return tokenizer.decode(pending, skip_special_tokens=False)
