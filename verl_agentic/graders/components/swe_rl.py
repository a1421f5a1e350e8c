"""SWE-RL's reward: similarity of the patch to the merged one. Nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.graders.answers.ground_truth import object_of
from verl_agentic.graders.code.patches import (
    FormatError,
    TooLargeError,
    apply_search_replace,
    parse_search_replace,
    patch_similarity,
)
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample

_TAGS = ("<think>", "</think>", "<solution>", "</solution>")


@component(low=-1.0, high=1.0, kind="outcome", needs_ground_truth=True, solved=1.0)
def swe_rl(sample: Sample, *, tags: bool = True) -> Value:
    """Returns -1 for an answer that is not a patch, else the mean similarity to the oracle patch, from 0 to 1.

    The mean runs over all files that either patch changes: `SequenceMatcher(None, predicted, oracle, autojunk=False)
    .ratio()` of their unified diffs, 0 for a file that only one of them changes. The answer is not a patch if a tag
    does not occur exactly once, the thought is empty, there is no SEARCH/REPLACE block, a search text is not in the
    file, or a replacement changes nothing. `acc` is 1 only for the oracle patch itself.

    Args:
        tags: requires `<think>...</think><solution>...</solution>` in the last turn, as in the paper. False: reads
            blocks from the final answer (for templates that write `<think>`).

    Raises:
        DataError: the ground truth is not `{"code_context": {path: text}, "oracle_new_content": {path: text}}`, or
            changes nothing.

    Rows whose oracle diffs are too large to compare in seconds (about 10,000 characters of code) abstain; a predicted
    diff that is too large counts 0.

    Paper: https://arxiv.org/abs/2502.18449. Deviations: the paper has no term for passed tests; add `resolved` for it.
    Its code also applies a search text that is the beginning of a line; here an edit replaces whole lines.
    """
    ground_truth = object_of(sample.ground_truth, of="swe_rl")
    old, oracle = _read_files(ground_truth, "code_context"), _read_files(ground_truth, "oracle_new_content")
    if all(old.get(path, "") == content for path, content in oracle.items()):
        raise DataError(f"the oracle patch of swe_rl must change a file, got {sorted(oracle)} unchanged; fix the row")
    try:
        edits = parse_search_replace(_extract_solution(sample, tags=tags))
        if not edits:
            raise FormatError("no SEARCH/REPLACE block")
        return patch_similarity(old, oracle, apply_search_replace(old, edits))[0]
    except FormatError:
        return -1.0
    except TooLargeError:
        return ABSTAIN


def _extract_solution(sample: Sample, *, tags: bool) -> str:
    if not tags:
        return sample.final_answer
    text = sample.turns[-1].text if sample.turns else ""
    if any(text.count(tag) != 1 for tag in _TAGS):
        raise FormatError("each tag must be there once")
    if not text.partition(_TAGS[0])[2].partition(_TAGS[1])[0].strip():
        raise FormatError("the thought is empty")
    return text.partition(_TAGS[2])[2].partition(_TAGS[3])[0].strip()


def _read_files(ground_truth: Mapping[str, Any], key: str) -> Mapping[str, str]:
    files = ground_truth.get(key)
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise DataError(
            f"ground truth of swe_rl needs {key!r}: {{path: content}}, got {str(files)[:200]!r}; fix the row"
        )
    return files
