"""The page as one HTML file, with the data of selected trajectories."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_agentic.base.errors import DataError
from verl_agentic.observe.viewer.page_files import SCRIPTS, STYLE, read
from verl_agentic.observe.viewer.query import Query
from verl_agentic.observe.viewer.run_view import RunView
from verl_agentic.observe.viewer.spot_check import spot_check

_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
)


def newest_rows(view: RunView, *, limit: int, query: Query, keys: Sequence[tuple[str, int, str]] = ()) -> list[int]:
    """Returns lines of the summaries: whole groups that pass a query, the newest first, up to `limit`.

    Args:
        view: of the run.
        limit: number of lines; the last group is complete.
        query: filters.
        keys: split, step and uid of the groups; empty: any.

    Raises:
        DataError: nothing passes.
    """
    groups = view.groups
    wanted_keys = set(keys)
    rows: list[int] = []
    for group in groups.order(view.matches(query), sort="step", descending=True):
        members = groups.rows(int(group))
        if wanted_keys:
            first = groups.table.slice(int(members[0]), 1).select(["split", "step", "uid"]).to_pylist()[0]
            if tuple(first.values()) not in wanted_keys:
                continue
        rows.extend(int(member) for member in members)
        if len(rows) >= limit:
            break
    if not rows:
        raise DataError(f"no trajectory passes the filters, got {view.run_dir}; choose other steps or keys")
    return rows


def spot_check_rows(view: RunView, *, count: int, seed: int) -> dict[int, list[str]]:
    """Returns lines of the summaries for a spot check -> the reason of each. Raises DataError if the run has none."""
    chosen = spot_check(view.groups.table, view.record, count=count, seed=seed)
    if not chosen:
        raise DataError(f"no trajectories to check, got {view.run_dir}; wait until the run has logged some")
    return chosen


def write_page(path: Path, view: RunView, rows: Mapping[int, Sequence[str]]) -> None:
    """Writes a page that needs no server.

    Args:
        path: of the HTML file.
        view: of the run.
        rows: lines of the summaries -> the reason of their selection.
    """
    groups = _list_chosen_groups(view, rows)
    about = {**view.about(), "trajectories": len(rows), "groups": len(groups), "folder": ""}
    data = {"about": about, "groups": groups, "metrics": view.metrics(about["metrics"])}
    with path.open("w", encoding="utf-8", errors="replace") as file:
        for piece in _iter_page(data, (view.detail_of(row) for row in rows), title=about["name"]):
            file.write(piece)


def _list_chosen_groups(view: RunView, rows: Mapping[int, Sequence[str]]) -> list[dict[str, Any]]:
    """Returns the lines of the list with their rows; a row's `record` is the number of its script."""
    groups = view.groups
    flags = bytearray(groups.table.num_rows)
    for row in rows:
        flags[row] = 1
    matches = pa.array([bool(flag) for flag in flags], pa.bool_())
    numbers = sorted({int(groups.of_row[row]) for row in rows})
    records = {row: number for number, row in enumerate(rows)}
    lines = []
    for number, line in zip(numbers, groups.lines(numbers, matches), strict=True):
        members = [int(row) for row in groups.rows(number) if int(row) in records]
        summaries = view.summaries(members)
        held = [
            {**s, "record": records[row], "why": list(rows[row])} for s, row in zip(summaries, members, strict=True)
        ]
        lines.append({"line": {**line, "rows": len(members)}, "rows": held})
    return lines


def _iter_page(data: Mapping[str, Any], records: Iterator[Mapping[str, Any]], *, title: str) -> Iterator[str]:
    style, script = read(STYLE), "\n".join(read(name) for name in SCRIPTS)
    policy = _POLICY.format(script=_hash_text(script), style=_hash_text(style))
    before, after = read("index.html").split("<!-- files -->")
    head, end = before.replace("verl-agentic view", html.escape(title) + " · verl-agentic"), "</body>"
    yield head + f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n<style>{style}</style>'
    yield after.rpartition(end)[0]
    yield _format_data_block("data", data)
    for number, record in enumerate(records):
        yield _format_data_block(f"record-{number}", record)
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _format_data_block(name: str, value: Any) -> str:
    # Without "<", data cannot end the block or begin another one.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _hash_text(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
