"""Dataset rows: questions about the synthetic world, or about a corpus folder."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from verl_agentic import ConfigError, EnvRow, Message

from .corpus import build_corpus, fingerprint_of, read_questions
from .docstrings import DOCSTRINGS, docstrings_folder
from .docstrings import make_questions as make_docstring_questions
from .question import Question
from .synthetic import SYNTHETIC, make_questions

Split = Literal["train", "test"]
Role = Literal["solve", "propose", "both"]
_TEST_SHARE = 0.2
_NOISE = 4
"""Number of documents of other questions in the check of a proposed one, as in the script of SSP."""
_PROPOSE = """\
Write a question whose only answer is: {answer}

Search for facts about it first, and for facts about what you find. Then write a question that needs several searches \
and does not contain the answer, and put it between <question> and </question> in your final answer. Someone who has \
your search results must be able to answer it."""


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    corpus: str = SYNTHETIC,
    hops: int | None = None,
    build: bool = False,
    role: Role = "solve",
) -> list[EnvRow]:
    """Returns `count` different questions as dataset rows; equal arguments give equal rows.

    Test and training questions start from different subjects.

    Args:
        split: `train` or `test`.
        count: how many.
        seed: of the choice and the order.
        corpus: `synthetic`, `docstrings`, or a folder that `corpus.build_corpus` has made.
        hops: searches that an answer needs, 1 or 2; None takes both kinds alike.
        build: makes the folder from the documentation on this machine, if it does not exist.
        role: `solve` for questions, `propose` for answers whose questions the policy writes, or `both` in turn.

    Raises:
        ConfigError: there are too few questions, an unknown role, or the folder does not exist.
    """
    if role not in ("solve", "propose", "both"):
        raise ConfigError(f"role must be solve, propose or both, got {role!r}")
    if corpus == SYNTHETIC:
        questions, fingerprint = make_questions(), SYNTHETIC
    elif corpus == DOCSTRINGS:
        questions, fingerprint = make_docstring_questions(), fingerprint_of(docstrings_folder())
    else:
        if build and not Path(corpus).exists():
            build_corpus(Path(corpus))
        questions, fingerprint = read_questions(Path(corpus))
    fitting = [q for q in questions if _split_of(q.subject) == split and hops in (None, len(q.hops))]
    random.Random(f"{split}/{seed}").shuffle(fitting)
    if hops is None:
        fitting = _alternate_hops(fitting)
    if not 0 <= count <= len(fitting):
        raise ConfigError(
            f"count must be 0 to {len(fitting)} for split {split!r}, corpus {corpus!r} and hops {hops}, got {count}"
        )
    rng = random.Random(f"{split}/{seed}/noise")
    return [
        _propose_row(question, fingerprint, noise=rng.sample(fitting, min(_NOISE, len(fitting))))
        if role == "propose" or (role == "both" and place % 2 == 0)
        else _build_row(question, fingerprint)
        for place, question in enumerate(fitting[:count])
    ]


def _split_of(subject: str) -> Split:
    share = int.from_bytes(hashlib.blake2b(subject.encode(), digest_size=4).digest(), "big") / 2**32
    return "test" if share < _TEST_SHARE else "train"


def _alternate_hops(questions: list[Question]) -> list[Question]:
    """Returns questions of one and two hops in turn, while there are both; all of them if they are of one kind."""
    kinds = [[q for q in questions if len(q.hops) == number] for number in (1, 2)]
    kinds = [kind for kind in kinds if kind]
    return [question for pair in zip(*kinds, strict=False) for question in pair]


def _build_row(question: Question, fingerprint: str) -> EnvRow:
    answers = list(question.answers)
    return EnvRow(
        prompt=(Message("user", question.text),),
        ground_truth=answers[0] if len(answers) == 1 else answers,
        data_source="search_qa",
        extra={
            "task_id": question.id,
            "hops": len(question.hops),
            "queries": [hop.query for hop in question.hops],
            "facts": [hop.query for hop in question.hops[1:]],
            "corpus": fingerprint,
        },
    )


def _propose_row(question: Question, fingerprint: str, *, noise: Sequence[Question]) -> EnvRow:
    """Returns the row of a proposer, with a question and searches that solve it."""
    target = question.answers[0]
    return EnvRow(
        prompt=(Message("user", _PROPOSE.format(answer=target)),),
        data_source="search_qa_propose",
        extra={
            "task_id": f"propose-{question.id}",
            "role": "propose",
            "target": target,
            "question": question.text,
            "queries": [hop.query for hop in question.hops],
            "noise": [other.hops[-1].query for other in noise],
            "corpus": fingerprint,
        },
    )
