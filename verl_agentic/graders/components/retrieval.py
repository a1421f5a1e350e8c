"""F-beta of the files and lines that the final answer names."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.graders.answers.ground_truth import object_of
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample

Spans = dict[str, list[tuple[int, int]]]
"""Path -> sorted, disjoint ranges of lines, both ends included; empty for a whole file."""
_RANGE = re.compile(r"(.+?)(?::|#(?=L))L?(\d{1,9})(?:[-\u2013]L?(\d{1,9}))?")
_AROUND = " \t*-`'\","
_NUMBER = re.compile(r"\s*\(?\d{1,4}[.)]\s+")
_COMMENT = re.compile(r"\(.*\)$|#|-|\u2013|\u2014|//")
_LONGEST_LINE = 1_000
_MOST_ENTRIES = 10_000  # after so many wrong entries, the rest does not matter


def f_beta(tp: float, fp: float, fn: float, *, beta: float) -> float:
    """Returns (1 + beta^2) P R / (beta^2 P + R) with P = tp / (tp + fp), R = tp / (tp + fn); 0 if tp is 0."""
    return (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp) if tp else 0.0


def retrieval_scores(answered: Spans, golden: Spans, *, beta: float = 0.5) -> tuple[float, float]:
    """Returns the F of files and the F of lines."""
    hits = len(answered.keys() & golden.keys())
    files = f_beta(hits, len(answered) - hits, len(golden) - hits, beta=beta)
    num_answered, num_golden = (sum(map(_count_lines, spans.values())) for spans in (answered, golden))
    common = sum(_count_common_lines(spans, golden.get(path, [])) for path, spans in answered.items())
    return files, f_beta(common, num_answered - common, num_golden - common, beta=beta)


def parse_answer(text: str) -> Spans:
    """Returns the files and lines of an answer: one `path:first-last`, `path:line` or `path` per line.

    Strips list marks, numbers of a list and quotes, and a comment in brackets or after a dash. `path#L10-L20` is read,
    too. Lines with other words are ignored. Only the first 10,000 entries count.
    """
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    num_entries = 0
    for line in dict.fromkeys(text.splitlines()):
        entry = _NUMBER.sub("", line).strip(_AROUND) if len(line) <= _LONGEST_LINE else ""
        name, _, comment = entry.partition(" ")
        if _COMMENT.match(comment.strip()):
            entry = name.strip(_AROUND)
        match = _RANGE.fullmatch(entry)
        path = match[1] if match else entry
        if not path or any(c.isspace() for c in path) or not ("." in path or "/" in path):
            continue
        num_entries += 1
        if num_entries > _MOST_ENTRIES:
            break
        first = int(match[2]) if match else 0
        last = int(match[3] or match[2]) if match else -1
        ranges[posixpath.normpath(path)] += [(first, last)] if 1 <= first <= last else []
    return {path: _merge_spans(spans) for path, spans in ranges.items()}


def _check_options(beta: float) -> None:
    if not beta > 0:
        raise ConfigError(f"retrieval.beta must be greater than 0, got {beta}; less than 1 weighs precision more")


@component(kind="outcome", info=("file_f", "line_f"), check=_check_options, needs_ground_truth=True)
def retrieval(sample: Sample, *, beta: float = 0.5) -> Graded:
    """Returns the mean of the F-beta of files and the F-beta of lines that the final answer names.

        F = (1 + beta^2) P R / (beta^2 P + R)

    The answer has one `path:first-last` per line. With beta below 1, a wrong line costs more than a missing one,
    because wrong lines fill the caller's context. A file without lines counts as no lines. If the row names files
    without lines, the value is the F of files. Abstains without ground truth. The outcome of the environment
    `repo_search` is the same.

    Args:
        beta: weight of recall against precision.

    Raises:
        DataError: the ground truth is not `{path: [[first, last], ...]}`, lines from 1, or names no file.

    This is SWE-grep's reward by the vendor's article; the format of the answer is ours.
    """
    return graded_answer(without_thoughts(sample.final_answer), sample.ground_truth, beta=beta)


def graded_answer(answer: str, ground_truth: Any, *, beta: float) -> Graded:
    """Returns the value of an answer without reasoning; see `retrieval`."""
    golden = _read_golden_spans(object_of(ground_truth, of="retrieval"))
    files, lines = retrieval_scores(parse_answer(answer), golden, beta=beta)
    value = (files + lines) / 2 if any(golden.values()) else files
    return Graded(value=value, info={"file_f": files, "line_f": lines})


def _read_golden_spans(ground_truth: Mapping[str, Any]) -> Spans:
    try:
        golden = {
            posixpath.normpath(path): _merge_spans([(int(first), int(last)) for first, last in spans])
            for path, spans in ground_truth.items()
        }
    except (TypeError, ValueError):
        golden = {}
    if not golden or any(first < 1 or last < first for spans in golden.values() for first, last in spans):
        raise DataError(
            f"the ground truth of retrieval must be {{path: [[first, last], ...]}} with lines from 1, got "
            f"{str(ground_truth)[:200]!r}; fix the row"
        )
    return golden


def _merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the same lines as sorted, disjoint ranges, so that repeated lines count once."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _count_lines(spans: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in spans)


def _count_common_lines(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> int:
    i = j = total = 0
    while i < len(first) and j < len(second):
        total += max(0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]) + 1)
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total
