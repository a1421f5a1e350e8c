"""Options of commands that write turns without a model: protocol, tokenizer, and arguments of the environment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_agentic.episode.codec.codec import Codec


def add_codec_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--protocol`, `--model`, `--tool-format` and `--config`."""
    parser.add_argument(
        "--protocol", default="chat", metavar="NAME", help="write turns in this protocol (default %(default)s)"
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="use the tokenizer and the chat template of this Hugging Face folder (default: those of the tiny models)",
    )
    parser.add_argument(
        "--tool-format",
        metavar="NAME",
        help="write tool calls as this parser of verl reads them; needs --model (default hermes)",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="pass an argument to make_env, as JSON or text",
    )


def make_chosen_codec(args: argparse.Namespace) -> tuple[Any, Codec]:
    """Returns the tokenizer and the codec that the options name.

    Raises:
        ConfigError: they contradict each other, or there is no such protocol.
        DataError: the folder is not loadable.
    """
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.evaluate.env_validation.script_codec import make_script_codec

    if args.tool_format and args.model is None:
        raise ConfigError("--tool-format needs --model DIR, got none; add or drop one")
    if args.model is None:
        return make_script_codec(args.protocol)
    from verl_agentic.verl.rollout.model_codec import load_codec

    return load_codec(args.model, protocol=args.protocol, tool_format=args.tool_format or "hermes")
