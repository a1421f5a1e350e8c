"""Patches as text: search/replace blocks, unified diffs, and their similarity.

All functions take a bounded number of steps. `difflib` alone may take minutes, for example on 20,000 spaces.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

MAX_STEPS = 100_000_000
"""Maximum number of steps of all comparisons of one patch; a few seconds."""
MAX_CHARS = 2_000_000
"""Maximum length of one file after its edits."""
_SEARCH, _DIVIDER, _REPLACE, _FENCE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "```"


class FormatError(ValueError):
    """The policy's patch cannot be applied. It gets a score, not a scoring error."""


class TooLargeError(Exception):
    """Comparisons would take more than `MAX_STEPS`."""


class StepBudget:
    """The remaining budget of comparisons, in positions, so that it is equal on all machines."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, count: int) -> None:
        """Counts steps in advance. Raises TooLargeError if the budget is exceeded."""
        if count > self._left:
            raise TooLargeError(f"{count} steps more than {self._left} are needed")
        self._left -= count


def parse_search_replace(text: str) -> dict[str, list[tuple[str, str]]]:
    """Returns path -> (search, replace) for each fenced block of the form

    ```
    ### path
    <<<<<<< SEARCH
    old lines
    =======
    new lines
    >>>>>>> REPLACE
    ```

    An empty side is one empty line. Blocks of another form are ignored, as by SWE-RL's pattern.
    """
    lines = text.split("\n")
    edits: dict[str, list[tuple[str, str]]] = {}
    index = 0
    while index + 2 < len(lines):
        is_head = _FENCE in lines[index] and lines[index + 1].startswith("### ") and lines[index + 2] == _SEARCH
        if not is_head:
            index += 1
            continue
        middle = _find_line(lines, index + 4, lambda line_index: lines[line_index] == _DIVIDER)
        end = _find_line(
            lines, middle + 2, lambda line_index: lines[line_index] == _REPLACE and _starts_fence(lines, line_index + 1)
        )
        if end >= len(lines):
            break  # no later block can be complete either
        sides = "\n".join(lines[index + 3 : middle]), "\n".join(lines[middle + 1 : end])
        edits.setdefault(lines[index + 1][4:].strip(), []).append(sides)
        index = end + 2
    return edits


def _find_line(lines: Sequence[str], start: int, is_it: Callable[[int], bool]) -> int:
    return next((index for index in range(start, len(lines)) if is_it(index)), len(lines))


def _starts_fence(lines: Sequence[str], index: int) -> bool:
    return index < len(lines) and lines[index].startswith(_FENCE)


def apply_search_replace(files: Mapping[str, str], edits: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str]:
    """Returns path -> content after the edits; missing files are empty.

    Replaces whole lines at every occurrence of the search text; the original (SWE-RL) also replaces the beginning of a
    line.

    Raises:
        FormatError: a search text is missing or equals its replacement, or a file gets too long.
    """
    return {path: _apply_edits(files.get(path, ""), path, pairs) for path, pairs in edits.items()}


def _apply_edits(content: str, path: str, pairs: Sequence[tuple[str, str]]) -> str:
    content = f"\n{content}"
    for search, replace in pairs:
        if search == replace:
            raise FormatError(f"search and replacement are the same in {path}")
        lines = re.compile(rf"\n{re.escape(search)}(?=\n|\Z)")
        count = sum(1 for _ in lines.finditer(content))
        if not count:
            raise FormatError(f"the search text is not in {path}")
        # Checked before the replacement, because a few blocks that double a file would fill the memory.
        if len(content) + count * (len(replace) - len(search)) > MAX_CHARS:
            raise FormatError(f"{path} gets longer than {MAX_CHARS} characters")
        content = lines.sub(lambda _, text=f"\n{replace}": text, content)
    return content[1:]


def unified_diff(old: str, new: str, *, steps: StepBudget | None = None) -> str:
    """Returns unified hunks with 3 lines of context; empty if equal. Raises TooLargeError for too many steps."""
    before, after = old.splitlines(), new.splitlines()
    matcher = _Matcher(before, after, steps or StepBudget(), autojunk=True)
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(3):
        _, i_first, _, j_first, _ = group[0]
        _, _, i_last, _, j_last = group[-1]
        lines.append(f"@@ -{_format_line_range(i_first, i_last)} +{_format_line_range(j_first, j_last)} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[i1:i2]]
                continue
            lines += [f"-{line}" for line in before[i1:i2]]
            lines += [f"+{line}" for line in after[j1:j2]]
    return "\n".join(lines)


def _format_line_range(start: int, stop: int) -> str:
    """Returns a range of lines in the notation of diffs."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def similarity(first: str, second: str, *, steps: StepBudget | None = None) -> float:
    """Returns difflib's ratio without autojunk; 0 if a side is empty. Raises TooLargeError for too many steps."""
    if not first or not second:
        return 0.0
    return 1.0 if first == second else _Matcher(first, second, steps or StepBudget(), autojunk=False).ratio()


class _Matcher(difflib.SequenceMatcher):  # type: ignore[type-arg]
    """A `SequenceMatcher` with a budget of steps."""

    a: Sequence[str]
    b: Sequence[str]

    def __init__(self, a: Sequence[str], b: Sequence[str], steps: StepBudget, *, autojunk: bool) -> None:
        super().__init__(None, a, b, autojunk=autojunk)
        self._steps = steps

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        span = self.a[alo:ahi]
        positions: Mapping[str, list[int]] = self.b2j  # type: ignore[attr-defined]
        self._steps.take(len(span) + sum(n * len(positions.get(item, ())) for item, n in Counter(span).items()))
        return super().find_longest_match(alo, ahi, blo, bhi)


def patch_similarity(
    old: Mapping[str, str], oracle: Mapping[str, str], predicted: Mapping[str, str]
) -> tuple[float, dict[str, float]]:
    """Returns the mean similarity of two patches over all changed files, and the similarity per file.

    Files are compared as unified diffs against their old content, by characters. A file counts 0 if only one patch
    changes it, or if the budget of steps is exceeded.

    Args:
        old: path -> content; missing files are empty.
        oracle: path -> right content.
        predicted: path -> predicted content.

    Raises:
        ValueError: the oracle changes nothing.
        TooLargeError: the oracle's own diffs are too large to compare.
    """
    oracle_diffs = {
        path: diff for path, content in oracle.items() if (diff := unified_diff(old.get(path, ""), content))
    }
    if not oracle_diffs:
        raise ValueError("the oracle patch changes nothing")
    # An almost right prediction with many small differences takes up to nine times as many steps.
    if sum(count * count for diff in oracle_diffs.values() for count in Counter(diff).values()) > MAX_STEPS // 10:
        raise TooLargeError(f"the oracle diffs have {sum(map(len, oracle_diffs.values()))} characters")
    steps = StepBudget()
    predicted_diffs = {path: _compute_diff(old.get(path, ""), content, steps) for path, content in predicted.items()}
    changed = {path: diff for path, diff in predicted_diffs.items() if diff != ""}
    each = {
        path: _compare_diffs(changed.get(path), oracle_diffs.get(path), steps)
        for path in sorted({*oracle_diffs, *changed})
    }
    return sum(each.values()) / len(each), each


def _compute_diff(old: str, new: str, steps: StepBudget) -> str | None:
    """Returns the diff, or None if it takes too many steps."""
    try:
        return unified_diff(old, new, steps=steps)
    except TooLargeError:
        return None


def _compare_diffs(diff: str | None, oracle_diff: str | None, steps: StepBudget) -> float:
    try:
        return similarity(diff or "", oracle_diff or "", steps=steps)
    except TooLargeError:
        return 0.0
