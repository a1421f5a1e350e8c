"""Runs a maker: verifies every candidate, keeps a journal, and writes the rows that are right."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.data.making.coverage import Coverage, Tails, require_cells
from verl_agentic.data.making.maker import Candidate, Maker, Record, RefusedError
from verl_agentic.data.overlap.find_overlaps import KINDS, Overlaps, find_overlaps
from verl_agentic.data.overlap.write_kept import write_kept
from verl_agentic.episode.run_each import run_each
from verl_agentic.evaluate.journal import Journal, keep_settings
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.models.client import connections
from verl_agentic.log.files.record_files import refuse_dates, write_json_lines

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
    """Candidates for which the model gave no reply, or a sandbox or worker failed; repeat the command to make them."""
    failure: str = ""
    """Why one of them is unfinished."""
    coverage: Coverage | None = None
    """Of the written rows, with `cover`."""
    first_coverage: Coverage | None = None
    """Of the rows before the tail was asked for."""


Finish = Callable[[Candidate], Awaitable[Mapping[str, Any]]]
"""Makes and verifies a candidate; returns `reason` and `record`. Raises EnvError if it is to be made again."""


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
    cover: int | None = None,
    jobs: int = 8,
    finishing: AbstractAsyncContextManager[Finish] | None = None,
    on_candidate: Callable[[str | None], None] = lambda reason: None,
) -> MakingReport:
    """Makes a file of rows.

    Candidates are kept in a journal beside the file, so that a repeated command continues. Rows that repeat earlier
    ones, or rows of `against`, are dropped. Of conversations, the column `question` is compared with `against`, too.

    Args:
        maker: of the rows.
        out: a file of JSON lines.
        seed: of the candidates.
        n: number of candidates.
        settings: of this run; a journal of other settings is refused.
        model: for makers that need one.
        against: files with rows that must not be made again.
        encode: adds columns, such as token ids, to rows that pass; the journal does not have them.
        cover: makes more candidates for cells of the maker with fewer rows than this, in at most 3 rounds. A cell that
            is a question of `against` is none.
        jobs: candidates at a time.
        finishing: gives the function that finishes a candidate, here or elsewhere; default: `finishing_here`.
        on_candidate: called with the reason why a candidate was dropped, or None.

    Raises:
        ConfigError: `out` has another suffix, holds other data or is in `against`, or the maker needs a model or cells.
        DataError: the journal or a file of `against` cannot be read.
    """
    _check_out(out, against)
    tails = None
    if cover is not None:
        covering = require_cells(maker)
        held_out = _find_held_out({cell: cell for cell in covering.list_cells()}, out, against)
        tails = Tails(covering, min_rows=cover, seed=seed, model=model, without=held_out)
    journal = Journal(out.with_suffix(".journal.jsonl"))
    keep_settings(out.with_suffix(".settings.json"), settings, has_begun=bool(journal.records))
    candidates = list(maker.make(seed=seed, n=n, model=model))
    try:
        async with finishing or finishing_here(maker, asks=model is not None) as finish:

            async def finish_and_write(new: Sequence[Candidate]) -> tuple[MakingReport, list[Record]]:
                failures = await _finish_candidates(new, finish, journal, jobs=jobs, on_candidate=on_candidate)
                records = [journal.records[done.key] for done in candidates if done.key in journal.records]
                return await _write_verified(maker, records, out, against, encode=encode, failures=failures)

            report, rows = await finish_and_write(candidates)
            first = tails and tails.measure(rows)
            # Unfinished candidates are not missing: a repeated command makes them.
            while tails and not report.unfinished and (tail := tails.make(rows)):
                candidates += tail
                report, rows = await finish_and_write(tail)
            return replace(report, coverage=tails and tails.measure(rows), first_coverage=first)
    finally:
        journal.close()


async def _finish_candidates(
    candidates: Sequence[Candidate],
    finish: Finish,
    journal: Journal,
    *,
    jobs: int,
    on_candidate: Callable[[str | None], None],
) -> list[str]:
    """Finishes the candidates that the journal lacks; returns why some of them are unfinished."""
    failures: list[str] = []

    async def finish_one(candidate: Candidate) -> None:
        try:
            record = await journal.kept(candidate.key, lambda: finish(candidate))
        except EnvError as error:
            failures.append(str(error))
        else:
            on_candidate(record["reason"])

    await run_each(candidates, finish_one, max_concurrent=jobs)
    return failures


def _check_out(out: Path, against: Sequence[Path]) -> None:
    if out.suffix != ".jsonl":
        raise ConfigError(f"rows are written as JSON lines, got {out}; name a .jsonl file")
    if out.resolve() in (file.resolve() for file in against):
        raise ConfigError(f"rows of {out} would repeat themselves, got it in --against; leave it out there")


@contextlib.asynccontextmanager
async def finishing_here(maker: Maker, *, asks: bool) -> AsyncIterator[Finish]:
    """Yields the function that finishes a candidate in this process.

    Args:
        maker: of the candidates.
        asks: whether they ask a model, with shared connections.
    """

    async def finish(candidate: Candidate) -> dict[str, Any]:
        try:
            record = await candidate.record()
            reason = await maker.verify(record)
        except RefusedError as refusal:
            record, reason = None, str(refusal)
        return {"reason": reason, "record": record}

    async with connections() if asks else contextlib.nullcontext():
        yield finish


async def _write_verified(
    maker: Maker,
    records: Sequence[Mapping[str, Any]],
    out: Path,
    against: Sequence[Path],
    *,
    encode: Encode | None,
    failures: Sequence[str],
) -> tuple[MakingReport, list[Record]]:
    """Writes the rows of verified candidates; returns the report on all, and the rows."""
    reasons = {record["key"]: record["reason"] for record in records if record["reason"] is not None}
    right = {record["key"]: record["record"] for record in records if record["reason"] is None}
    if encode is not None:
        right = dict(zip(right, await encode(list(right.values())), strict=True))
        reasons.update({key: row for key, row in right.items() if isinstance(row, str)})
    rows = {key: row for key, row in right.items() if not isinstance(row, str)}
    keeps_near = getattr(maker, "KEEPS_NEAR", False)
    reasons.update(await asyncio.to_thread(_write_unrepeated, rows, out, against, keeps_near=keeps_near))
    written_rows = [row for key, row in rows.items() if key not in reasons]
    if write_beside := getattr(maker, "write_beside", None):
        write_beside(out, written_rows)
    short = {key: reason.partition(":")[0] for key, reason in reasons.items()}
    report = MakingReport(
        rows=len(written_rows),
        dropped=dict(Counter(short.values()).most_common()),
        examples={short[key]: f"{key}: {reason}" for key, reason in reversed(reasons.items())},
        unfinished=len(failures),
        failure=failures[0] if failures else "",
    )
    return report, written_rows


def _write_unrepeated(
    rows: Mapping[str, Record], out: Path, against: Sequence[Path], *, keeps_near: bool
) -> dict[str, str]:
    """Writes rows without repeated ones; returns key -> reason of the dropped ones."""
    questions = {key: row["question"] for key, row in rows.items() if row.get("messages") and row.get("question")}
    reasons = _find_held_out(questions, out, against)
    candidates_path, keys = out.with_suffix(".made.jsonl"), list(rows)
    write_json_lines(refuse_dates(rows.values(), out), candidates_path)
    try:
        overlaps = find_overlaps([candidates_path], against)
        repeated = overlaps.repeated
        if keeps_near:
            is_near = (overlaps.kinds == KINDS.index("near")) & (overlaps.others >= overlaps.num_against)
            repeated = repeated[~is_near[repeated]]
        numbers = (repeated - overlaps.num_against).tolist()
        reasons |= {keys[number]: _describe_overlap(overlaps, number, out) for number in numbers}
        write_kept(candidates_path, np.array([key not in reasons for key in keys], dtype=bool), out)
    finally:
        candidates_path.unlink()
    return reasons


def _find_held_out(questions: Mapping[str, str], out: Path, against: Sequence[Path]) -> dict[str, str]:
    """Returns key -> reason of the questions that are in `against`.

    They are compared alone, because the prompt of a conversation has further words: it equals no prompt of
    `against`, and a short question shares no span with one. Many conversations on one question make its words common.
    """
    if not against or not questions:
        return {}
    unique_questions = list(dict.fromkeys(questions.values()))
    path = out.with_suffix(".questions.jsonl")
    write_json_lines([{"question": question} for question in unique_questions], path)
    try:
        overlaps = find_overlaps([path], against)
        numbers = (overlaps.leaked - overlaps.num_against).tolist()
        held_out = {unique_questions[number]: _describe_overlap(overlaps, number, out) for number in numbers}
    finally:
        path.unlink()
    return {key: held_out[question] for key, question in questions.items() if question in held_out}


def _describe_overlap(overlaps: Overlaps, number: int, out: Path) -> str:
    """Returns why a row of the only checked file, which becomes `out`, is dropped."""
    row = number + overlaps.num_against
    file, place = overlaps.place(int(overlaps.others[row]))
    location = out if file >= overlaps.num_against_files else overlaps.files[file]
    return f"repeats another row ({KINDS[overlaps.kinds[row]]}): row {place} of {location}"
