"""Runs a maker: verifies every candidate, keeps a journal, and writes the rows that are right."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.data.evaluation.journal import Journal, keep_settings
from verl_agentic.data.making.maker import Candidate, Maker, NoReplyError, Record, RefusedError
from verl_agentic.data.overlap.find_overlaps import KINDS, find_overlaps
from verl_agentic.data.overlap.write_kept import write_kept
from verl_agentic.data.rows import write_json_lines
from verl_agentic.errors import ConfigError
from verl_agentic.rewards.models.chat_model import ChatModel
from verl_agentic.rewards.models.client import connections

Encode = Callable[[Sequence[Record]], Awaitable[Sequence[Record | str]]]
"""Adds columns to rows; gives the reason for a row that must not be written."""


@dataclass(frozen=True, kw_only=True)
class MakingReport:
    """The result of a run."""

    rows: int
    """Written rows."""
    dropped: Mapping[str, int]
    """Short reason -> number of candidates."""
    examples: Mapping[str, str]
    """Short reason -> key and full reason of one candidate."""
    unfinished: int
    """Candidates for which the model gave no reply; repeat the command to make them."""


async def make_data(
    maker: Maker,
    out: Path,
    *,
    seed: int,
    n: int,
    settings: Mapping[str, Any],
    model: ChatModel | None = None,
    against: Sequence[Path] = (),
    encode: Encode | None = None,
    jobs: int = 8,
    on_candidate: Callable[[str | None], None] = lambda reason: None,
) -> MakingReport:
    """Makes a file of rows.

    Candidates are kept in a journal beside the file, so that a repeated command continues. Rows that repeat earlier
    ones, or rows of `against`, are dropped.

    Args:
        maker: of the rows.
        out: a file of JSON lines.
        seed: of the candidates.
        n: number of candidates.
        settings: of this run; a journal of other settings is refused.
        model: for makers that need one.
        against: files with rows that must not be made again.
        encode: adds columns, such as token ids, to rows that pass; the journal does not have them.
        jobs: candidates at a time.
        on_candidate: called with the reason why a candidate was dropped, or None.

    Raises:
        ConfigError: `out` has another suffix, holds other data or is in `against`, or the maker needs a model.
        DataError: the journal or a file of `against` cannot be read.
    """
    if out.suffix != ".jsonl":
        raise ConfigError(f"rows are written as JSON lines, got {out}; name a .jsonl file")
    _check_other(out, against)
    journal = Journal(out.with_suffix(".journal.jsonl"))
    keep_settings(out.with_suffix(".settings.json"), settings, has_begun=bool(journal.records))
    candidates = list(maker.make(seed=seed, n=n, model=model))
    slots, unfinished = asyncio.Semaphore(jobs), 0

    async def finish(candidate: Candidate) -> None:
        nonlocal unfinished
        if candidate.key not in journal.records:
            async with slots:
                try:
                    journal.append(await _finished(candidate, maker))
                except NoReplyError:
                    unfinished += 1
                    return
        on_candidate(journal.records[candidate.key]["reason"])

    try:
        async with connections() if model is not None else _nothing():
            await asyncio.gather(*map(finish, candidates))
    finally:
        journal.close()
    records = [journal.records[one.key] for one in candidates if one.key in journal.records]
    return await _report(maker, records, out, against, encode=encode, unfinished=unfinished)


def _check_other(out: Path, against: Sequence[Path]) -> None:
    if out.resolve() in (file.resolve() for file in against):
        raise ConfigError(f"rows of {out} would repeat themselves, got it in --against; leave it out there")


async def _report(
    maker: Maker,
    records: Sequence[Mapping[str, Any]],
    out: Path,
    against: Sequence[Path],
    *,
    encode: Encode | None,
    unfinished: int,
) -> MakingReport:
    """Writes the rows of verified candidates and returns the report on all."""
    reasons = {record["key"]: record["reason"] for record in records if record["reason"] is not None}
    right = {record["key"]: record["record"] for record in records if record["reason"] is None}
    if encode is not None:
        right = dict(zip(right, await encode(list(right.values())), strict=True))
        reasons.update({key: row for key, row in right.items() if isinstance(row, str)})
    rows = {key: row for key, row in right.items() if not isinstance(row, str)}
    keeps_near = getattr(maker, "KEEPS_NEAR", False)
    reasons.update(await asyncio.to_thread(_write, rows, out, against, keeps_near=keeps_near))
    if write_beside := getattr(maker, "write_beside", None):
        write_beside(out, [row for key, row in rows.items() if key not in reasons])
    short = {key: reason.partition(":")[0] for key, reason in reasons.items()}
    return MakingReport(
        rows=len(records) - len(reasons),
        dropped=dict(Counter(short.values()).most_common()),
        examples={short[key]: f"{key}: {reason}" for key, reason in reversed(reasons.items())},
        unfinished=unfinished,
    )


async def _finished(candidate: Candidate, maker: Maker) -> dict[str, Any]:
    try:
        record = await candidate.record()
        reason = await maker.verify(record)
    except RefusedError as refusal:
        record, reason = None, str(refusal)
    return {"key": candidate.key, "reason": reason, "record": record}


def _write(rows: Mapping[str, Record], out: Path, against: Sequence[Path], *, keeps_near: bool) -> dict[str, str]:
    """Writes rows without repeated ones; returns key -> reason of the dropped ones."""
    made = out.with_suffix(".made.jsonl")
    write_json_lines(rows.values(), made)
    try:
        found = find_overlaps([made], against)
        repeated = found.repeated
        if keeps_near:
            is_near = (found.kinds == KINDS.index("near")) & (found.others >= found.num_against)
            repeated = repeated[~is_near[repeated]]
        is_kept = np.ones(len(rows), dtype=bool)
        is_kept[repeated - found.num_against] = False
        write_kept(made, is_kept, out)
    finally:
        made.unlink()
    keys, reasons = list(rows), {}
    for row in repeated.tolist():
        file, number = found.place(int(found.others[row]))
        where = out if found.files[file] == made else found.files[file]
        kind = KINDS[found.kinds[row]]
        reasons[keys[row - found.num_against]] = f"repeats another row ({kind}): row {number} of {where}"
    return reasons


class _nothing:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...
