"""`verl-agentic data mix`: mixes files of rows by shares."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("files", nargs="+", metavar="FILE:SHARE", help="take this share of the mix from this file")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write rows here, as JSON lines")
    parser.add_argument(
        "--by", choices=("rows", "tokens"), default="rows", help="divide by rows, or by tokens of input_ids "
        "(default %(default)s)"
    )  # fmt: skip
    parser.add_argument(
        "--total", type=int, metavar="N", help="write N rows or tokens (default: as many as the files have)"
    )
    parser.add_argument("--repeat", action="store_true", help="repeat rows of files that are too small for --total")
    parser.add_argument("--seed", type=int, default=0, help="take and shuffle rows by this seed (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the parts as one JSON line")


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints its parts; returns 0."""
    from verl_agentic.data.making.mix_files import mix_files

    parts = mix_files(
        dict(map(_parse_share, args.files)),
        args.out,
        unit=args.by,
        total=args.total,
        may_repeat=args.repeat,
        seed=args.seed,
    )
    if args.json:
        print(json.dumps([asdict(part) for part in parts]))
        return 0
    print(f"{args.out}: {sum(part.rows for part in parts)} rows")
    for part in parts:
        tokens = "" if part.tokens is None else f", {part.tokens} tokens"
        copies = f"; rows are repeated, up to {part.repeats} times" if part.repeats > 1 else ""
        print(
            f"  {part.share:.1%} of {args.by}: {part.rows} rows{tokens} from {part.rows_of_file} of {part.file}{copies}"
        )
    print(f"data.train_files={args.out.resolve()}")
    return 0


def _parse_share(text: str) -> tuple[Path, float]:
    from verl_agentic.base.errors import ConfigError

    file, _, share = text.rpartition(":")
    try:
        return Path(file or "?"), float(share)
    except ValueError:
        raise ConfigError(f"a part of a mix is FILE:SHARE, got {text!r}; for example agent.jsonl:0.2") from None
