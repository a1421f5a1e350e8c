"""`verl-agentic data check`: finds rows that repeat earlier rows, or rows of other files."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.options.typed_options import Options, declare, typed_command

if TYPE_CHECKING:
    from verl_agentic.data.overlap.find_overlaps import Overlaps


class CheckOptions(Options):
    """Options of a check."""

    files: Sequence[Path] = declare("check the rows of these files", is_required=True, is_positional=True, nargs="+",
                                    metavar="FILE")  # fmt: skip
    against: Sequence[Path] = declare("compare them with the rows of these files", (), nargs="+", metavar="FILE")
    drop: Path | None = declare("write the rows that repeat nothing: to this file, or for several files into this "
                                "folder", metavar="OUT")  # fmt: skip
    max_overlap: int = declare("exit with 1 above N repeated rows (default: 0)", 0, min=0, metavar="N")
    jobs: int = declare("use N processes (default: the cores)", os.cpu_count() or 1, min=1, metavar="N")
    show: int = declare("show N pairs of each kind (default: 5)", 5, min=0, metavar="N")
    reward: Sequence[str] = declare("exit with 1 if one of these reward components cannot be met by any answer to a "
                                    "row, such as math", (), nargs="+", metavar="NAME")  # fmt: skip
    json: bool = declare("print one JSON line instead of tables", False)


def check_files(options: CheckOptions) -> int:
    """Prints the report; returns 1 if more rows repeat others than allowed or verl would read other values, else 0."""
    from verl_agentic.data.overlap.find_overlaps import find_overlaps

    unmet = _unmet_truths(options) + _changed_columns(options)
    targets = _choose_targets(options, options.drop) if options.drop else []
    overlaps = find_overlaps(options.files, options.against, jobs=options.jobs)
    result = {
        "rows": overlaps.starts[-1] - overlaps.num_against,
        "against": overlaps.num_against,
        "repeated": len(overlaps.repeated),
        "leaked": len(overlaps.leaked),
        "counts": list(_iter_counts(overlaps)),
        "other_answers": overlaps.other_answers,
        "common_spans": len(overlaps.common),
        "thinning": overlaps.thinning,
        "pairs": list(_iter_pairs(overlaps, options.show)),
    }
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        _print_report(result)
    _write_unrepeated(overlaps, targets)
    return 1 if unmet or len(overlaps.repeated) > options.max_overlap else 0


def _unmet_truths(options: CheckOptions) -> int:
    """Writes the rows whose ground truth no answer can meet to standard error, and returns their number."""
    from verl_agentic.data.truth_checks import truth_problems
    from verl_agentic.rewards.component import load_component

    components = [load_component(name) for name in options.reward]
    problems = [problem for file in options.files for problem in truth_problems(file, components)]
    for problem in problems[: options.show]:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{len(problems)} ground truths that no answer can meet", file=sys.stderr)
    return len(problems)


def _changed_columns(options: CheckOptions) -> int:
    """Writes the columns that verl's dataset reads otherwise to standard error, and returns their number."""
    from verl_agentic.log.files.as_verl import changed_values

    changed = [line for file in options.files for line in changed_values(file)]
    for line in changed:
        print(line, file=sys.stderr)
    return len(changed)


def _iter_counts(overlaps: Overlaps) -> Iterator[dict[str, Any]]:
    from verl_agentic.data.overlap.find_overlaps import KINDS

    def side(row: int) -> tuple[str, str]:
        return str(overlaps.files[overlaps.place(row)[0]]), overlaps.sources[row]

    rows = overlaps.repeated.tolist()
    counts = Counter((KINDS[overlaps.kinds[row]], *side(row), *side(int(overlaps.others[row]))) for row in rows)
    for (kind, file, source, other_file, other_source), count in counts.most_common():
        yield {
            "kind": kind,
            "rows": count,
            "file": file,
            "source": source,
            "of_file": other_file,
            "of_source": other_source,
        }


def _iter_pairs(overlaps: Overlaps, num_shown: int) -> Iterator[dict[str, Any]]:
    from verl_agentic.data.overlap.find_overlaps import KINDS
    from verl_agentic.data.overlap.shared_span import shared_span

    for index, kind in enumerate(KINDS):
        rows = overlaps.repeated[overlaps.kinds[overlaps.repeated] == index][:num_shown].tolist()
        tasks = overlaps.tasks([*rows, *overlaps.others[rows].tolist()])
        for row in rows:
            other = int(overlaps.others[row])
            (file, number), (other_file, other_number) = overlaps.place(row), overlaps.place(other)
            yield {
                "kind": kind,
                "row": f"{overlaps.files[file]}:{number}",
                "of": f"{overlaps.files[other_file]}:{other_number}",
                "span": shared_span(tasks[row], tasks[other], common=overlaps.common),
            }


def _print_report(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    compared = f", compared with {result['against']} of other files" if result["against"] else ""
    print(
        f"{result['rows']} rows{compared}: {result['repeated']} repeat another row, {result['leaked']} of other files"
    )
    if result["counts"]:
        table = Table("kind", "rows", "file", "source", "repeats rows of", "source")
        for line in result["counts"]:
            table.add_row(*(Text(str(value)) for value in line.values()))
        console.print(table)
    for pair in result["pairs"]:
        span = pair["span"] if len(pair["span"]) <= 300 else f"{pair['span'][:300]} ..."
        print(f"{pair['kind']}: {pair['row']} and {pair['of']}\n    {span}")
    if result["other_answers"]:
        print(
            f"{result['other_answers']} tasks share their prompt with another one and differ in ground truth or hidden "
            "fields: no duplicates"
        )
    if result["common_spans"]:
        print(f"{result['common_spans']} spans of 13 words are in too many rows to belong to one task: not compared")
    if result["thinning"] > 1:
        print(f"One span of 13 words in {result['thinning']} is searched for, because the other files are large")


def _choose_targets(options: CheckOptions, out: Path) -> list[Path]:
    """Returns the file for the other rows of each checked file. Raises ConfigError if they would replace another."""
    from verl_agentic.base.errors import ConfigError

    targets = [out] if len(options.files) == 1 else [out / file.name for file in options.files]
    read = [file.resolve() for file in (*options.files, *options.against)]
    if len(set(targets)) < len(targets) or any(target.resolve() in read for target in targets):
        raise ConfigError(
            f"--drop writes each file once, and none of those that are read, got {', '.join(map(str, targets))}; "
            "name another file or folder"
        )
    return targets


def _write_unrepeated(overlaps: Overlaps, targets: list[Path]) -> None:
    import numpy as np

    from verl_agentic.data.overlap.write_kept import write_kept

    for file, target in enumerate(targets, start=overlaps.num_against_files):
        is_kept = np.ones(overlaps.starts[file + 1] - overlaps.starts[file], dtype=bool)
        is_kept[overlaps.repeated_in(file)] = False
        print(f"{target}: {write_kept(overlaps.files[file], is_kept, target)} of {len(is_kept)} rows")


add_arguments, run = typed_command(CheckOptions, check_files)
