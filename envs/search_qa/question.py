"""Questions with answers and hops, and the check that they can be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_agentic import DataError
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.tools.search.bm25 import Bm25Index
from verl_agentic.tools.search.search_tool import render_passages

TOP_K = 3
MAX_PASSAGE_CHARS = 1_000
"""Default number of passages of a search; questions are checked with it."""


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One search on the way to the answer."""

    query: str
    passage_id: str
    """The passage that it must find."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question that needs searches."""

    id: str
    kind: str
    """Kind of its facts."""
    subject: str
    """Its subject; questions of train and test never share one."""
    text: str
    answers: tuple[str, ...]
    """Accepted answers."""
    hops: tuple[Hop, ...]
    """Searches in order; each follows from the question and the earlier results."""

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], source: str) -> Question:
        """Returns the question of a JSON object.

        Raises:
            DataError: it is malformed; the message begins with `source`.
        """
        try:
            hops = tuple(Hop(**hop) for hop in record["hops"])
            return cls(**{**record, "answers": tuple(record["answers"]), "hops": hops})
        except (KeyError, TypeError) as cause:
            raise DataError(f"{source} is no question, got {cause}; build the corpus anew") from cause


def is_answerable(
    question: Question, index: Bm25Index, *, top_k: int = TOP_K, max_chars: int = MAX_PASSAGE_CHARS
) -> bool:
    """Returns whether the hops lead to the answer, and fewer hops do not.

    Every hop's query must find its passage, the last observation must show an answer, and neither the question nor an
    earlier observation may.
    """
    earlier, last = [question.text], ""
    for hop in question.hops:
        passages = index.search(hop.query, top_k=top_k)
        matches = [passage for passage in passages if passage.id == hop.passage_id]
        if not matches or shows("\n".join(earlier), question.answers):
            return False
        last = render_passages(matches, max_chars=max_chars)
        earlier.append(render_passages(passages, max_chars=max_chars))
    return shows(last, question.answers)


def shows(text: str, answers: Sequence[str]) -> bool:
    """Returns whether a text contains one of the answers as separate words, after normalisation."""
    words = f" {normalise(text)} "
    return any(f" {normalise(answer)} " in words for answer in answers)
