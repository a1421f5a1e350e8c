"""Rows: a generated module, and what to do with its weakness."""

from __future__ import annotations

import zlib

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.bridges.task_rows import Split, draw_rows

from .modules import Families, WeakModule, draw_module
from .patch_task import STATEMENT, patch_columns

KINDS = ("find", "exploit", "patch")
WEAKNESSES = (
    "delimiter injection", "integer overflow", "missing lower bound", "partial comparison", "path traversal",
    "SQL injection", "uncontrolled format string", "unsafe deserialisation",
)  # fmt: skip
_FIND = """One function of this module has a security weakness: with chosen arguments, a caller gets what the docstring
keeps secret.

```python
{source}```

Which function is it, and which weakness is it? The weakness is one of: {weaknesses}.
Answer with one line, the name of the function, a colon and the weakness, and nothing else."""
_EXPLOIT = """The function `{function}` of this module has a security weakness: with chosen arguments, a caller gets
what its docstring keeps secret.

```python
{source}```

Its first arguments come from this function. `flag` is the secret, and `folder` is an empty folder:

```python
{prepare}```

A caller chooses the other arguments. The tool `call` calls the function with a practice secret. Answer with a JSON list
of arguments for which the result, or the error, has the secret, and nothing else."""


def make_rows(
    *, split: Split, count: int, seed: int, task: str | None = None, families: Families = "seen"
) -> list[EnvRow]:
    """Returns `count` rows of different modules; equal arguments give equal rows.

    Args:
        split: `train` or `test`; they share no module.
        count: number of rows.
        seed: of the modules.
        task: `find`, `exploit` or `patch`; None: all of them in turn.
        families: `seen`: the families of the training rows. `held_out`: others, for the test split only.

    Raises:
        ConfigError: an unknown split, task or choice of families, or too few different modules.
    """
    if families not in ("seen", "held_out") or (families == "held_out" and split != "test"):
        raise ConfigError(
            f"families must be seen, or held_out with split='test', got {families!r} with {split=}; choose one of both"
        )
    return draw_rows(
        KINDS,
        lambda kind, number: _build_row(kind, draw_module(number, families=families)),
        task=task,
        split=split,
        count=count,
        seed=seed,
    )


def _build_row(kind: str, module: WeakModule) -> EnvRow:
    source, weak = module.write_source(is_fixed=False), module.weak
    task_id = f"security-{kind}-{zlib.crc32(source.encode()):08x}"
    extra = {"task_id": task_id, "kind": kind, "weakness": weak.weakness}
    if kind == "find":
        text = _FIND.format(source=source, weaknesses=", ".join(WEAKNESSES))
        del extra["weakness"]
        return _make_row(text, extra, truth=f"{weak.name}: {weak.weakness}")
    if kind == "exploit":
        text = _EXPLOIT.format(function=weak.name, source=source, prepare=weak.shown.prepare)
        sources = [module.write_source(is_fixed=is_fixed) for is_fixed in (False, True)]
        columns = {
            "sources": sources,
            "prepare": weak.shown.prepare,
            "function": weak.name,
            "attack": [*weak.shown.attacks[0]],
        }
        return _make_row(text, {**extra, **columns}, truth=None)
    columns = patch_columns(module, task_id)
    text = f"{STATEMENT.format(path=module.path)}\n\n```python\n{source}```"
    return _make_row(text, {**extra, **columns}, truth=None)


def _make_row(text: str, extra: dict, *, truth: str | None) -> EnvRow:
    return EnvRow(prompt=(Message("user", text),), ground_truth=truth, data_source="security", extra=extra)
