"""Texts of single tokens, from the tokenizer that a run stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTEXT = 6
"""Tokens before that a text may depend on: whether a word begins with a space, for one."""
_LONGEST = 8
"""Tokens that one character may span; what is not whole by then are bytes of no character."""


def find_tokenizer(run_dir: Path) -> Tokenizer | None:
    """Returns the tokenizer that lies nearest to the top of a run's folder; None without one that can be read."""
    from tokenizers import Tokenizer

    found = sorted(run_dir.rglob("tokenizer/tokenizer.json"), key=lambda path: (len(path.parts), path))
    for path in found:
        try:
            return Tokenizer.from_file(str(path))
        except Exception:  # the library raises bare ones; a file that is cut off must not hide the run
            continue
    return None


def token_texts(
    tokenizer: Tokenizer | None, token_ids: Sequence[int], *, before: Sequence[int] = ()
) -> list[str | None]:
    """Returns the text that every token adds; joined they are the text of all of them.

    A character of several tokens stands at the one that completes it, and the others have an empty text. None stands
    for an id that the tokenizer does not know.

    Args:
        tokenizer: None makes every text None.
        token_ids: of the stream.
        before: ids that stand before it.
    """
    if tokenizer is None:
        return [None] * len(token_ids)
    size = tokenizer.get_vocab_size()
    texts: list[str | None] = []
    context = [token for token in before if 0 <= token < size][-_CONTEXT:]
    pending: list[int] = []
    for token in token_ids:
        if not 0 <= token < size or tokenizer.id_to_token(token) is None:
            _flush(tokenizer, context, pending, texts)
            context, pending = [], []
            texts.append(None)
            continue
        pending.append(token)
        text = _added(tokenizer, context, pending)
        if text.endswith("\ufffd") and len(pending) < _LONGEST:
            texts.append("")
            continue
        texts.append(text)
        context, pending = [*context, *pending][-_CONTEXT:], []
    _flush(tokenizer, context, pending, texts)
    return texts


def _flush(tokenizer: Tokenizer, context: list[int], pending: list[int], texts: list[str | None]) -> None:
    """Gives what is not whole to the last token, so that nothing is lost."""
    if pending:
        texts[-1] = _added(tokenizer, context, pending)


def _added(tokenizer: Tokenizer, context: list[int], pending: list[int]) -> str:
    # Texts are compared, not cut by length alone: a decoder may end a context otherwise than it begins a whole.
    known = tokenizer.decode(context, skip_special_tokens=False)
    whole = tokenizer.decode([*context, *pending], skip_special_tokens=False)
    if whole.startswith(known):
        return whole[len(known) :]
    return tokenizer.decode(pending, skip_special_tokens=False)
