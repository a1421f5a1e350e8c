"""`verl-agentic data make`: makes rows of a kind, and writes those that pass its check."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
from dataclasses import asdict
from pathlib import Path

from verl_agentic.cli.options.numbers import whole
from verl_agentic.evaluate.cli.cluster_options import add_cluster_options, work_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    from verl_agentic.data.cli.encoding_options import add_encoding_options
    from verl_agentic.data.making.maker import maker_names

    parser.add_argument(
        "kind", choices=maker_names(), metavar="KIND", help=f"make rows of this kind: {', '.join(maker_names())}"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write rows here, as JSON lines")
    parser.add_argument(
        "-n", "--count", type=whole(1), default=100, metavar="N", help="make N candidates (default 100)"
    )
    parser.add_argument("--seed", type=int, default=0, help="make candidates by this seed (default %(default)s)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="pass this to the maker")
    parser.add_argument(
        "--against", type=Path, nargs="+", default=[], metavar="FILE", help="leave out rows that are in these files"
    )
    parser.add_argument("--jobs", type=whole(1), default=8, metavar="N", help="make N candidates at a time (default 8)")
    model = parser.add_argument_group("model", "for kinds that need one, behind an OpenAI-compatible endpoint")
    model.add_argument("--url", metavar="URL", help="ask the model at this URL, which ends with /v1")
    model.add_argument("--model", metavar="NAME", help="name of the model")
    model.add_argument("--api-key-env", default="", metavar="NAME", help="take the key from this environment variable")
    model.add_argument("--temperature", type=float, default=1.0, help="sample at this temperature (default 1.0)")
    model.add_argument("--max-tokens", type=whole(1), default=2_048, metavar="N", help="limit replies (default 2048)")
    add_encoding_options(parser)
    add_cluster_options(parser)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON line")


def run(args: argparse.Namespace) -> int:
    """Makes the rows and prints the report; returns 0 if there is at least one row and no reply is missing, else 1."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.key_values import parse_key_values
    from verl_agentic.data.cli.encoding_options import encode_of
    from verl_agentic.data.making.make_data import finishing_here, make_data
    from verl_agentic.data.making.maker import load_maker
    from verl_agentic.graders.models.chat_model import ChatModel

    if bool(args.url) != bool(args.model):
        raise ConfigError(f"--url and --model go together, got {args.url!r} and {args.model!r}; give both or none")
    options = parse_key_values(args.option, option="--option")
    settings = {"kind": args.kind, "seed": args.seed, "options": options, "model": args.model}
    model = None
    if args.url:
        model = ChatModel(
            url=args.url,
            model=args.model,
            api_key_env=args.api_key_env,
            temperature=args.temperature,
            max_tokens=args.max_tokens,
        )
    maker = load_maker(args.kind, options)
    make_work = functools.partial(finishing_here, maker, asks=model is not None)
    report = asyncio.run(
        make_data(
            maker,
            args.out,
            seed=args.seed,
            n=args.count,
            settings=settings,
            model=model,
            against=args.against,
            encode=encode_of(args),
            jobs=args.jobs,
            finishing=work_of(args, make_work, concurrency=args.jobs),
        )
    )
    if args.json:
        print(json.dumps(asdict(report), ensure_ascii=False))
    else:
        print(f"{args.out}: {report.rows} rows")
        for reason, count in report.dropped.items():
            print(f"dropped {count}: {reason}\n    such as {report.examples[reason][:300]}")
        if report.unfinished:
            print(f"{report.unfinished} candidates are unfinished ({report.failure}); repeat the command to make them")
    return 0 if report.rows and not report.unfinished else 1
