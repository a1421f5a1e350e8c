"""`--tokenizer`: token ids for rows that are conversations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

from verl_agentic.cli.options.typed_options import Options, declare

if TYPE_CHECKING:
    from verl_agentic.data.making.make_data import Encode


class EncodingOptions(Options):
    """Options of token ids."""

    GROUP = ("token ids", "for kinds whose rows are conversations")
    tokenizer: str | None = declare("add token ids and masks, with tokenizer and chat template of this model, which "
                                    "will be trained", metavar="DIR")  # fmt: skip
    shape: Literal["sft", "cpt"] = declare("train the messages of the assistant, or every token (cpt: continual "
                                           "pretraining); default %(default)s", "sft", flags=["--as"])  # fmt: skip
    protocol: str = declare("write turns in this protocol (default %(default)s)", "chat", metavar="NAME")
    tool_format: str = declare("write tool calls in this format, for protocol chat (default %(default)s)", "hermes",
                               metavar="NAME")  # fmt: skip


def encode_of(options: EncodingOptions) -> Encode | None:
    """Returns the function that adds ids to rows; None without a tokenizer.

    Raises:
        ConfigError: a shape is asked for without a tokenizer.
        DataError: the tokenizer cannot be loaded.
    """
    from verl_agentic.base.errors import ConfigError

    if options.tokenizer is None:
        if options.shape != "sft":
            raise ConfigError(
                f"--as {options.shape} writes token ids, got no --tokenizer; name the folder of the model"
            )
        return None
    from verl_agentic.data.datasets.conversation_rows import with_ids
    from verl_agentic.verl.rollout.model_codec import load_codec

    tokenizer, codec = load_codec(options.tokenizer, tool_format=options.tool_format, protocol=options.protocol)
    return functools.partial(with_ids, codec=codec, tokenizer=tokenizer, shape=options.shape)
