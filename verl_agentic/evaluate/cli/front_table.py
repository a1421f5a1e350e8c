"""The Pareto front of several runs or evaluations, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def signed_names(text: str) -> list[str]:
    """Returns the names of `A,B,-C`; a minus sign stays, and means that less is better."""
    return [name.strip() for name in text.split(",") if name.strip()]


def front_of(names: Sequence[str], means: Mapping[str, Sequence[float]]) -> list[str]:
    """Returns the keys whose values no other key beats.

    Args:
        names: see `signed_names`.
        means: key -> a value for each name.
    """
    from verl_agentic.graders.groups.pareto import pareto_front

    signs = [-1.0 if name.startswith("-") else 1.0 for name in names]
    return pareto_front({key: [s * x for s, x in zip(signs, row, strict=True)] for key, row in means.items()})


def print_front(
    title: str, first: str, names: Sequence[str], cells: Mapping[str, Sequence[str]], front: Sequence[str]
) -> None:
    """Prints a table: the key under `first`, its cells under `names`, and whether it is on the front."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in (first, *names, "on the front"):
        table.add_column(name, overflow="fold")
    for key, row in cells.items():
        table.add_row(key, *row, "yes" if key in front else "")
    Console().print(table)
