"""Mixes files of rows by shares.

Paper: https://arxiv.org/abs/2310.12823 (AgentTuning: agent data beside general instructions, by a share)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from verl_agentic.base.errors import ConfigError, DataError, boundary
from verl_agentic.log.files.record_files import numbered_records, refuse_dates, write_json_lines

Unit = Literal["rows", "tokens"]
_FORMS = ("input_ids", "messages", "prompt", "text")
_MAX_ERROR = 0.01


@dataclass(frozen=True, kw_only=True)
class MixedFile:
    """The part of one file in a mix."""

    file: str
    share: float
    """Of the unit by which the files were mixed."""
    rows: int
    """Written rows."""
    rows_of_file: int
    tokens: int | None
    """Written tokens; None if a row has no `input_ids`."""
    repeats: int
    """Maximum number of copies of a row."""


def mix_files(
    shares: Mapping[Path, float],
    out: Path,
    *,
    unit: Unit = "rows",
    total: int | None = None,
    may_repeat: bool = False,
    seed: int = 0,
) -> list[MixedFile]:
    """Writes rows of several files in random order, and returns the parts.

    Args:
        shares: file (JSON lines or parquet) -> share.
        out: a file of JSON lines.
        unit: unit of the shares; tokens are those of `input_ids`.
        total: rows or tokens of the mix; None: as many as possible without copies.
        may_repeat: lets files that are too small give rows again.
        seed: of the choice and the order.

    Raises:
        ConfigError: the shares do not sum to 1, or `out` has another suffix.
        DataError: a file cannot be read, is too small, or has rows of another form, or the rows are too long for the
            shares.
    """
    if abs(sum(shares.values()) - 1) > 1e-6 or min(shares.values()) <= 0:
        raise ConfigError(f"shares must be positive and sum to 1, got {[*shares.values()]}; change them")
    is_read = out.resolve() in {file.resolve() for file in shares}
    if out.suffix != ".jsonl" or is_read or (total is not None and total < 1):
        raise ConfigError(f"rows go into another .jsonl file, at least 1, got {out} and {total}; change it")
    tokens = {file: _count_tokens(file) for file in shares}
    _check_forms(list(shares))
    if unit == "tokens" and (unknown := [file for file, counts in tokens.items() if (counts < 0).any()]):
        raise DataError(f"tokens are counted in input_ids, got rows of {unknown[0]} without; add ids, or mix by rows")
    sizes = {file: counts if unit == "tokens" else np.ones_like(counts) for file, counts in tokens.items()}
    weights = [*shares.values()]
    total = total or _largest_total(weights, [int(size.sum()) for size in sizes.values()])
    rng = np.random.default_rng(seed)
    chosen: dict[Path, np.ndarray] = {}
    for (file, size), target in zip(sizes.items(), _divide_total(weights, total), strict=True):
        if target > size.sum() and not may_repeat:
            raise DataError(
                f"{file} is too small, got {size.sum()} {unit} of {target}; lower the total, or allow repeated rows"
            )
        chosen[file] = _choose_rows(size, target, rng)
    parts = _measure_parts(shares, chosen, tokens, unit)
    lines = [line for file, rows in chosen.items() for line in _iter_lines(file, rows)]
    write_json_lines(refuse_dates((json.loads(lines[place]) for place in rng.permutation(len(lines))), out), out)
    return parts


def _count_tokens(file: Path) -> np.ndarray:
    """Returns the number of tokens of each row, [N]; -1 if unknown. Raises DataError for a file without rows."""
    counts = [len(row["input_ids"]) if row.get("input_ids") else -1 for _, row in numbered_records(file)]
    if not counts:
        raise DataError(f"{file} has no rows; leave it out")
    return np.array(counts, dtype=np.int64)


def _check_forms(files: Sequence[Path]) -> None:
    """Raises DataError if no trainer could read the rows of all files."""
    forms = [{form for form in _FORMS if next(numbered_records(file))[1].get(form)} for file in files]
    if not set.intersection(*forms):
        summary = ", ".join(f"{file}: {sorted(form)}" for file, form in zip(files, forms, strict=True))
        raise DataError(f"files of a mix need a common column of {_FORMS}, got {summary}; write them in one form")


def _divide_total(shares: Sequence[float], total: int) -> list[int]:
    """Returns the amount of each file; the sum is the total."""
    ends = [round(share * total) for share in accumulate(shares, initial=0.0)]
    return [end - start for start, end in pairwise(ends)]


def _largest_total(shares: Sequence[float], sizes: Sequence[int]) -> int:
    total = int(min(size / share for size, share in zip(sizes, shares, strict=True)) + 1e-9)
    while any(target > size for target, size in zip(_divide_total(shares, total), sizes, strict=True)):
        total -= 1
    return total


def _choose_rows(sizes: np.ndarray, target: int, rng: np.random.Generator) -> np.ndarray:
    """Returns numbers of rows whose sizes sum to about the target; every row is used before one is used again."""
    rounds = max(1, -(-target // int(sizes.sum())))
    order = np.concatenate([rng.permutation(len(sizes)) for _ in range(rounds)])
    sums = np.cumsum(sizes[order])
    return order[: int(np.abs(sums - target).argmin()) + 1]


def _measure_parts(
    shares: Mapping[Path, float], chosen: Mapping[Path, np.ndarray], tokens: Mapping[Path, np.ndarray], unit: Unit
) -> list[MixedFile]:
    """Returns the parts. Raises DataError if their shares are wrong."""
    amounts = {file: int(tokens[file][rows].sum()) if unit == "tokens" else len(rows) for file, rows in chosen.items()}
    parts = []
    for file, rows in chosen.items():
        share = amounts[file] / sum(amounts.values())
        if abs(share - shares[file]) > _MAX_ERROR:
            raise DataError(
                f"the mix is too small for its shares, got {share:.3f} of {shares[file]:g} for {file}; raise the total"
            )
        counts = tokens[file]
        parts.append(
            MixedFile(
                file=str(file),
                share=share,
                rows=len(rows),
                rows_of_file=len(counts),
                tokens=None if (counts < 0).any() else int(counts[rows].sum()),
                repeats=max(Counter(rows.tolist()).values()),
            )
        )
    return parts


def _iter_lines(file: Path, rows: np.ndarray) -> Iterator[str]:
    """Yields the chosen rows of a file as JSON, with their copies."""
    copies = Counter(rows.tolist())
    for number, (_, row) in enumerate(numbered_records(file)):
        with boundary(DataError, f"writing {file}, row {number}, as JSON"):
            yield from [json.dumps(row)] * copies[number]
