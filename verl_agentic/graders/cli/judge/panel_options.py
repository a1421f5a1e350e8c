"""Options of a panel of judges."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from verl_agentic.cli.options.option_values import whole

if TYPE_CHECKING:
    from verl_agentic.graders.judge.options import JudgeOptions


def add_panel_options(parser: argparse.ArgumentParser) -> None:
    """Adds server, models, repeats and the options of the component `judge`."""
    parser.add_argument("--endpoint", required=True, metavar="URL", help="ask this server, such as "
                        "http://127.0.0.1:8000/v1")  # fmt: skip
    parser.add_argument("--model", required=True, action="append", help="ask the model of this name; repeat for a "
                        "panel of judges")  # fmt: skip
    parser.add_argument("--api-key-env", default="", metavar="NAME", help="read the API key from this environment "
                        "variable")  # fmt: skip
    parser.add_argument("--repeats", type=whole(1), default=1, metavar="N", help="ask N times, each time with other "
                        "delimiters (default %(default)s)")  # fmt: skip
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="set another option of the "
                        "component judge, such as concurrency=8, view=answer, reference=false")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")


def panel_of(args: argparse.Namespace) -> JudgeOptions:
    """Returns the panel. Raises ConfigError if an option is invalid."""
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.graders.judge.options import JudgeOptions

    options = parse_key_values(args.option, option="--option")
    return JudgeOptions.from_mapping(
        {
            "timeout_s": 120.0,
            **options,
            "endpoint": args.endpoint,
            "models": args.model,
            "api_key_env": args.api_key_env,
        }
    )
