"""RLVRR's reward chain: ordered keywords of a reference, and weighted style checks.

Paper: https://openreview.net/forum?id=ZumVIktGbt (values as in its public code, YJiangcm/RLVRR)
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.sandbox.interface import Command, Limits, Runner

MAX_REPEATS = 10
"""Maximum number of keywords in an answer per keyword of the reference. More count as keyword stuffing and score 0."""
_HARNESS = files("verl_agentic.graders.answers").joinpath("style_harness.py").read_text(encoding="utf-8")
_SPLIT = "[[[SPLIT]]]"
_LIMITS = Limits(wall_s=5.0, cpu_s=4, memory_mb=256)


@dataclass(frozen=True, kw_only=True)
class ReferenceChain:
    """The reference for answers to an open question."""

    reference: str
    key_points: tuple[tuple[tuple[str, ...], ...], ...]
    """Each point is a list of alternative keyword sets."""
    checks: tuple[tuple[str, float], ...] = ()
    """Python source of a function of the answer, and its weight."""

    def __post_init__(self) -> None:
        weights = [weight for _, weight in self.checks]
        if not self.key_points or not all(all(keywords) for point in self.key_points for keywords in point):
            raise DataError(f"a reference chain needs key points of keywords, got {self.key_points!r}; fix the row")
        if any(not weight >= 0 for weight in weights) or sum(weights) > 1 + 1e-9:
            raise DataError(f"the weights of style checks must be at least 0 and add up to at most 1, got {weights}")

    @classmethod
    def of(cls, ground_truth: Any) -> ReferenceChain:
        """Returns the chain of a row.

        Args:
            ground_truth: `{"reference": ..., "key_points": [[[keyword, ...], ...], ...], "style": [{"code": ...,
                "weight": ...}, ...]}`, also as JSON; or a label of RLVRR's data.

        Raises:
            DataError: the ground truth has another form.
        """
        try:
            row: Any = _parse_row(ground_truth)
            return cls(
                reference=str(row["reference"]),
                key_points=tuple(tuple(tuple(map(str, words)) for words in point) for point in row["key_points"]),
                checks=tuple((str(check["code"]), float(check["weight"])) for check in row.get("style") or ()),
            )
        except (KeyError, TypeError, ValueError, SyntaxError, AttributeError, IndexError) as cause:
            if isinstance(cause, DataError):
                raise
            raise DataError(
                'ground_truth must be {"reference": text, "key_points": [[[keyword]]], "style": [{"code", "weight"}]}, '
                f"got {str(ground_truth)[:200]!r}; fix the row"
            ) from cause


def content_score(answer: str, chain: ReferenceChain) -> float:
    """Returns how well an answer has the reference's keywords in the same order, from 0 to 1.

    Mean over key points of the best keyword set's LCS(answer, reference) / max(length), counted in keyword occurrences.
    """
    points = [
        max(
            (
                _compute_common_share(_find_keywords(words, answer), _find_keywords(words, chain.reference))
                for words in point
            ),
            default=0.0,
        )
        for point in chain.key_points
    ]
    return sum(points) / len(points)


async def style_score(answer: str, chain: ReferenceChain, runner: Runner) -> float:
    """Returns the sum of the weights of the passed style checks, from 0 to 1.

    A model wrote the checks, so they run in a sandbox with the answer as data. A check fails if it raises, does not
    end, or comes after one that does not end.

    Raises:
        SandboxError: the sandbox failed.
    """
    if not chain.checks:
        return 0.0
    task = json.dumps({"text": answer, "checks": [source for source, _ in chain.checks]})
    command = Command(code=_HARNESS, files={"task.json": task.encode("utf-8", "replace")}, outputs=["verdicts.txt"])
    result = await runner.run(command, limits=_LIMITS)
    verdicts = result.files.get("verdicts.txt", b"").decode("utf-8", "replace").splitlines()
    return sum(weight for (_, weight), verdict in zip(chain.checks, verdicts, strict=False) if verdict == "1")


def _parse_row(ground_truth: Any) -> Any:
    if isinstance(ground_truth, str) and _SPLIT in ground_truth:
        parts = ground_truth.split(_SPLIT)
        style = ast.literal_eval(parts[-1])["key_points"] if len(parts) > 2 else []
        return {
            "reference": parts[0],
            "key_points": ast.literal_eval(parts[1]),
            "style": [{"code": check["verification_code"], "weight": check["weight"]} for check in style],
        }
    return json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth


def _find_keywords(keywords: Sequence[str], text: str) -> list[str]:
    """Returns the keyword occurrences of a text in order, as whole words, in lower case."""
    any_of = "|".join(map(re.escape, keywords))
    return [keyword.lower() for keyword in re.findall(rf"(?<!\w)(?:{any_of})(?!\w)", text, flags=re.IGNORECASE)]


def _compute_common_share(words: Sequence[str], reference: Sequence[str]) -> float:
    longest = max(len(words), len(reference))
    if not longest or len(words) > MAX_REPEATS * len(reference):
        return 0.0
    return _common_length(words, reference) / longest


def _common_length(words: Sequence[str], reference: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence."""
    row = [0] * (len(reference) + 1)
    for word in words:
        diagonal = 0
        for index, same in enumerate(reference, start=1):
            above = row[index]
            row[index] = diagonal + 1 if word == same else max(above, row[index - 1])
            diagonal = above
    return row[-1]
