"""`--tokenizer`: token ids for rows that are conversations."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_agentic.data.making.make_data import Encode


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("token ids", "for kinds whose rows are conversations")
    group.add_argument("--tokenizer", metavar="DIR", help="add token ids and masks, with tokenizer and chat template "
                       "of this model, which will be trained")  # fmt: skip
    group.add_argument("--as", dest="shape", choices=("sft", "cpt"), default="sft", help="train the messages of the "
                       "assistant, or every token (cpt: continual pretraining); default %(default)s")  # fmt: skip
    group.add_argument("--protocol", default="chat", metavar="NAME", help="write turns in this protocol (default "
                       "%(default)s)")  # fmt: skip
    group.add_argument("--tool-format", default="hermes", metavar="NAME", help="write tool calls in this format, for "
                       "protocol chat (default %(default)s)")  # fmt: skip


def encode_of(args: argparse.Namespace) -> Encode | None:
    """Returns the function that adds ids to rows; None without a tokenizer.

    Raises:
        ConfigError: a shape is asked for without a tokenizer.
        DataError: the tokenizer cannot be loaded.
    """
    from verl_agentic.base.errors import ConfigError

    if args.tokenizer is None:
        if args.shape != "sft":
            raise ConfigError(f"--as {args.shape} writes token ids, got no --tokenizer; name the folder of the model")
        return None
    from verl_agentic.data.datasets.conversation_rows import with_ids
    from verl_agentic.verl.rollout.model_codec import load_codec

    tokenizer, codec = load_codec(args.tokenizer, tool_format=args.tool_format, protocol=args.protocol)
    return functools.partial(with_ids, codec=codec, tokenizer=tokenizer, shape=args.shape)
