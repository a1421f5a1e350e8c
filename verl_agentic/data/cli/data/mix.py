"""`verl-agentic data mix`: mixes files of rows by shares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from verl_agentic.cli.options.typed_options import Options, declare, typed_command


class MixOptions(Options):
    """Options of a mix."""

    files: Sequence[str] = declare("take this share of the mix from this file", is_required=True, is_positional=True,
                                   nargs="+", metavar="FILE:SHARE")  # fmt: skip
    out: Path = declare("write rows here, as JSON lines", is_required=True, metavar="FILE")
    by: Literal["rows", "tokens"] = declare("divide by rows, or by tokens of input_ids (default %(default)s)", "rows")
    total: int | None = declare("write N rows or tokens (default: as many as the files have)", metavar="N")
    repeat: bool = declare("repeat rows of files that are too small for --total", False)
    seed: int = declare("take and shuffle rows by this seed (default %(default)s)", 0)
    json: bool = declare("print the parts as one JSON line", False)


def write_mix(options: MixOptions) -> int:
    """Writes the file and prints its parts; returns 0."""
    from verl_agentic.data.making.mix_files import mix_files

    parts = mix_files(
        dict(map(_parse_share, options.files)),
        options.out,
        unit=options.by,
        total=options.total,
        may_repeat=options.repeat,
        seed=options.seed,
    )
    if options.json:
        print(json.dumps([asdict(part) for part in parts]))
        return 0
    print(f"{options.out}: {sum(part.rows for part in parts)} rows")
    for part in parts:
        tokens = "" if part.tokens is None else f", {part.tokens} tokens"
        copies = f"; rows are repeated, up to {part.repeats} times" if part.repeats > 1 else ""
        source = f"{part.rows_of_file} of {part.file}"
        print(f"  {part.share:.1%} of {options.by}: {part.rows} rows{tokens} from {source}{copies}")
    print(f"data.train_files={options.out.resolve()}")
    return 0


def _parse_share(text: str) -> tuple[Path, float]:
    from verl_agentic.base.errors import ConfigError

    file, _, share = text.rpartition(":")
    try:
        return Path(file or "?"), float(share)
    except ValueError:
        raise ConfigError(f"a part of a mix is FILE:SHARE, got {text!r}; for example agent.jsonl:0.2") from None


add_arguments, run = typed_command(MixOptions, write_mix)
