"""`verl-agentic data make`: makes rows of a kind, and writes those that pass its check."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.typed_options import Options, declare, typed_command
from verl_agentic.data.cli.encoding_options import EncodingOptions, encode_of
from verl_agentic.data.making.maker import load_maker, maker_names
from verl_agentic.evaluate.cli.cluster_options import ClusterOptions, work_of

if TYPE_CHECKING:
    from verl_agentic.data.making.coverage import Coverage

_SHOWN_CELLS = 5


class ModelOptions(Options):
    """Options of the model that some kinds ask."""

    GROUP = ("model", "for kinds that need one, behind an OpenAI-compatible endpoint")
    url: str | None = declare("ask the model at this URL, which ends with /v1", metavar="URL")
    model: str | None = declare("name of the model", metavar="NAME")
    api_key_env: str = declare("take the key from this environment variable", "", metavar="NAME")
    temperature: float = declare("sample at this temperature (default %(default)s)", 1.0)
    max_tokens: int = declare("limit replies (default %(default)s)", 2_048, min=1, metavar="N")


class MakeOptions(ModelOptions, EncodingOptions, ClusterOptions):
    """Options of a new data set."""

    COMMON = ("count", "option", "url", "model", "tokenizer")
    kind: str = declare(f"make rows of this kind: {', '.join(maker_names())}", is_required=True, is_positional=True,
                        choices=maker_names(), metavar="KIND")  # fmt: skip
    out: Path = declare("write rows here, as JSON lines", is_required=True, metavar="FILE")
    count: int = declare("make N candidates (default %(default)s)", 100, min=1, flags=["-n", "--count"], metavar="N")
    seed: int = declare("make candidates by this seed (default %(default)s)", 0)
    option: Sequence[str] = declare("pass this to the maker", (), metavar="KEY=VALUE")
    against: Sequence[Path] = declare("leave out rows that are in these files", (), nargs="+", metavar="FILE")
    jobs: int = declare("make N candidates at a time (default %(default)s)", 8, min=1, metavar="N")
    cover: int | None = declare("make more for each question, topic or relation that has fewer than N rows, and "
                                "report the coverage", min=1, metavar="N")  # fmt: skip
    json: bool = declare("print the report as one JSON line", False)


def make_rows(options: MakeOptions) -> int:
    """Makes the rows and prints the report; returns 0 if there is at least one row and no reply is missing, else 1."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.data.making.make_data import finishing_here, make_data
    from verl_agentic.graders.models.chat_model import ChatModel

    if bool(options.url) != bool(options.model):
        raise ConfigError(
            f"--url and --model go together, got {options.url!r} and {options.model!r}; give both or none"
        )
    maker_options = parse_key_values(options.option, option="--option")
    settings = {"kind": options.kind, "seed": options.seed, "options": maker_options, "model": options.model}
    model = None
    if options.url and options.model:
        model = ChatModel(
            url=options.url,
            model=options.model,
            api_key_env=options.api_key_env,
            temperature=options.temperature,
            max_tokens=options.max_tokens,
        )
    maker = load_maker(options.kind, maker_options)
    make_work = functools.partial(finishing_here, maker, asks=model is not None)
    report = asyncio.run(
        make_data(
            maker,
            options.out,
            seed=options.seed,
            n=options.count,
            settings=settings,
            model=model,
            against=options.against,
            encode=encode_of(options),
            cover=options.cover,
            jobs=options.jobs,
            finishing=work_of(options, make_work, concurrency=options.jobs),
        )
    )
    if options.json:
        print(json.dumps(asdict(report), ensure_ascii=False))
    else:
        print(f"{options.out}: {report.rows} rows")
        for reason, count in report.dropped.items():
            print(f"dropped {count}: {reason}\n    such as {report.examples[reason][:300]}")
        if report.coverage is not None and report.first_coverage is not None:
            _print_coverage(report.coverage, report.first_coverage)
        if report.unfinished:
            print(f"{report.unfinished} candidates are unfinished ({report.failure}); repeat the command to make them")
    return 0 if report.rows and not report.unfinished else 1


def _print_coverage(coverage: Coverage, first: Coverage) -> None:
    print(
        f"{coverage.share:.0%} of {len(coverage.rows)} cells have {coverage.min_rows} rows or more ({first.share:.0%} "
        "before the tail was asked for)"
    )
    for cell in coverage.tail[:_SHOWN_CELLS]:
        print(f"  {coverage.rows[cell]} rows: {cell[:100]}")


add_arguments, run = typed_command(MakeOptions, make_rows)
