"""The choice of sessions: by condition, the best of each group, at most a number for each prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from verl_agentic.data.export.logged_sessions import LoggedSession, SessionLog
from verl_agentic.data.export.row_filter import RowFilter


def passing(
    sessions: Iterable[LoggedSession], condition: RowFilter, *, is_whole: bool, left_out: Counter[str]
) -> list[LoggedSession]:
    """Returns sessions with their rows that pass a condition.

    Args:
        sessions: to choose from.
        condition: on rows.
        is_whole: leave out sessions with a row that does not pass.
        left_out: counts rows.
    """
    selection = []
    for session in sessions:
        rows = tuple(row for row in session.rows if condition.passes(row))
        if is_whole and len(rows) < len(session.rows):
            rows = ()
        left_out["that fail --where"] += len(session.rows) - len(rows)
        if rows:
            selection.append(LoggedSession(rows=rows))
    return selection


def best_of_groups(
    sessions: Sequence[LoggedSession], count: int, *, value_name: str, left_out: Counter[str]
) -> list[LoggedSession]:
    """Returns the sessions of each group with the highest values, in the order of the log; the first of equals."""
    selection = []
    for _, members in groupby(sessions, key=lambda session: session.group):
        valued_members = with_values(list(members), value_name=value_name, left_out=left_out)
        order = sorted(range(len(valued_members)), key=lambda place: -valued_members[place][0])
        selection += [valued_members[place][1] for place in sorted(order[:count])]
        left_out["beyond --best"] += sum(len(valued_members[place][1].rows) for place in order[count:])
    return selection


def first_of_prompts(
    log: SessionLog, sessions: Sequence[LoggedSession], count: int, *, left_out: Counter[str]
) -> list[LoggedSession]:
    """Returns the first sessions of each prompt over all steps; a prompt is a task of a data source."""
    num_by_prompt: Counter[tuple[str, ...]] = Counter()
    selection = []
    for session, text in zip(sessions, log.prompts(sessions), strict=True):
        last = session.rows[-1]
        # Without a task's id, the prompts of different groups cannot be compared. Several files may number their tasks
        # from 0.
        prompt = (last["env"], last["data_source"], last["task_id"] or last["uid"], text)
        num_by_prompt[prompt] += 1
        if num_by_prompt[prompt] <= count:
            selection.append(session)
        else:
            left_out["beyond --per-prompt"] += len(session.rows)
    return selection


def with_values(
    sessions: Iterable[LoggedSession], *, value_name: str, left_out: Counter[str]
) -> list[tuple[float, LoggedSession]]:
    """Returns the sessions whose value is known, with the value."""
    pairs = []
    for session in sessions:
        value = session.value(value_name)
        if value is None:
            left_out[f"without {value_name}"] += len(session.rows)
        else:
            pairs.append((value, session))
    return pairs
