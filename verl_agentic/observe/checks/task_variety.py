"""Check: number of different tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_MIN_GROUPS = 8
_OFTEN, _VERY_OFTEN = 4.0, 16.0
"""Groups per task: if every step repeats the tasks, and else."""
_NUMBERS = ("index", "task_id")
"""Keys of `extra_info` that number rows."""
_ADVICE = (
    "the policy may learn them by heart: make more rows (verl-agentic prepare --train), check data.train_files and "
    "data.train_max_samples, and look at the outcome of validation rows"
)


@record_check
def task_variety(run: RunEvidence) -> Finding:
    """Returns how often tasks are repeated, by the tasks' ids and by the contents of a sample of rows."""
    episodes = run.episodes
    groups = episodes[["step", "uid", "task_id"]].drop_duplicates(["step", "uid"])
    named = groups[groups["task_id"] != ""]
    per_step = int(groups["step"].value_counts().median()) if len(groups) else 0
    rows = {record["uid"]: _make_content_key(record) for record in run.sample if record["place"] == "last"}
    counts = {"tasks": (len(named), named["task_id"].nunique()), "rows": (len(rows), len({*rows.values()}))}
    counts = {name: count for name, count in counts.items() if count[0] >= _MIN_GROUPS}
    if not counts:
        return unknown("there are too few groups with a known task")
    name, (played, different) = max(counts.items(), key=lambda count: count[1][0] / count[1][1])
    times = played / different
    message = f"{different} different {name} in {played} groups: each {times:.3g} times; {per_step} groups a step"
    evidence = {"groups": float(played), "different": float(different)}
    if different <= per_step and times >= _OFTEN:
        message = f"every step repeats the same few {name}: {message}"
        return Finding(status="fail", found=message, advice=_ADVICE, evidence=evidence)
    status = "warn" if times >= _VERY_OFTEN else "ok"
    return Finding(status=status, found=message, advice=_ADVICE if status == "warn" else "", evidence=evidence)


def _make_content_key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a row from others, whatever its number is: copies of a row have other numbers."""
    try:
        extra = json.loads(record["extra"] or "{}")
    except ValueError:
        extra = {}
    hidden = {key: value for key, value in extra.items() if key not in _NUMBERS} if isinstance(extra, dict) else extra
    return tuple(record["prompt_ids"]), record["ground_truth"], json.dumps(hidden, sort_keys=True)
