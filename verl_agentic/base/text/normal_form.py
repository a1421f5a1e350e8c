"""The form in which short answers are compared: SQuAD's, without what makes wrong answers right.

SQuAD's rule is: lower case, no ASCII punctuation, no articles, single spaces. Deviations:

- A number keeps its sign and its decimal point (`-5` is not `5`, `3.14` is not `314`), and digits on both sides of
  other punctuation stay apart (`1/2` is not `12`); commas between thousands go (`1,000` is `1000`).
- A text never becomes empty: `A` and `The` keep their article, `...` keeps its punctuation.
- Punctuation and forms of letters are Unicode's: composed and decomposed accents, full-width letters, curly
  apostrophes, dashes and invisible characters make no difference.

Paper: https://arxiv.org/abs/1606.05250 (SQuAD, section 6.1)
"""

from __future__ import annotations

import re
import string
import unicodedata

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_SIGN, _POINT = "\ue000", "\ue001"  # of a number, while punctuation is deleted
_SAME = {ord(char): "-" for char in "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63"} | {
    ord(char): "'" for char in "\u2018\u2019\u201b\u02bc\u02bb\u02b9\u2032\u00b4`"
}
_OTHER_LETTERS = ("<super>", "<sub>", "<fraction>")  # 10² is not 102
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_MINUS = re.compile(r"(?<![\w)\]-])-(?=[$€£¥]?\.?\d)")
_LEADING_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
_BETWEEN_DIGITS = re.compile(rf"(?<=\d)[{re.escape(string.punctuation)}]+(?=\d)")
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def normalise(answer: str) -> str:
    """Returns the normal form of an answer; empty only where no character of it can be seen.

    Punctuation is deleted without leaving a space, so that `U.S.` is `us` and `co-op` is `coop`.
    """
    text = one_form(answer)
    number = _MINUS.sub(f" {_SIGN}", _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text))
    number = _LEADING_POINT.sub(f"0{_POINT}", number)
    number = _BETWEEN_DIGITS.sub(lambda match: _POINT if match[0] == "." else " ", number)
    words = number.translate(_WITHOUT_PUNCTUATION).replace(_SIGN, "-").replace(_POINT, ".")
    return _squeeze_spaces(_ARTICLE.sub(" ", words)) or _squeeze_spaces(words) or _squeeze_spaces(text)


def one_form(text: str) -> str:
    """Returns a text in lower case, each letter, dash and apostrophe in one form, without invisible characters."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_SAME)
        text = unicodedata.normalize("NFC", "".join(map(_normalise_char, text)).lower())
    return text.translate(_SAME).translate(_WITHOUT_UNSEEN).lower()


def _normalise_char(char: str) -> str:
    if char.isascii() or unicodedata.decomposition(char).startswith(_OTHER_LETTERS):
        return char
    return unicodedata.normalize("NFKC", char)


def _squeeze_spaces(text: str) -> str:
    return " ".join(text.split())


class _Deleted(dict[int, int | None]):
    """A table for `str.translate` that deletes characters of some categories."""

    def __init__(self, *, categories: frozenset[str], chars: str = "") -> None:
        super().__init__({ord(char): None for char in chars})
        self._categories = categories

    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        is_deleted = not char.isspace() and unicodedata.category(char) in self._categories
        self[code] = None if is_deleted else code
        return self[code]


_WITHOUT_UNSEEN = _Deleted(categories=_DROPPED)
_WITHOUT_PUNCTUATION = _Deleted(
    categories=frozenset({"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"}), chars=string.punctuation
)
