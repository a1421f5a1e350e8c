"""`verl-agentic serve`: serves a model folder to OpenAI-compatible clients, on a CPU or one GPU."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from verl_agentic.cli.options.device_option import Device, DeviceChoice, device_option, dtype_on, read_device
from verl_agentic.cli.options.option_values import MAX_PORT, whole
from verl_agentic.cli.options.typed_options import Options, add_options, declare, read_options
from verl_agentic.web.listening.listening_options import add_listening_options, listen, print_use, token_of
from verl_agentic.web.listening.listening_socket import url_of

_TOKEN_VARIABLE = "VERL_AGENTIC_API_KEY"


class ServeOptions(Options):
    """Options of the model."""

    model: Path = declare("serve this Hugging Face folder", is_required=True, metavar="DIR")
    name: str | None = declare("answer requests for this model name (default: the name of the folder)")
    tool_format: str = declare("parse tool calls with this parser of verl (default %(default)s)", "hermes",
                               metavar="NAME")  # fmt: skip
    max_running: int = declare("run at most this many requests in a batch (default %(default)d)", 256, min=1)
    threads: int | None = declare("compute with this many threads (default: one per core)", min=1)
    device: DeviceChoice = device_option("run the model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_options(parser, ServeOptions)
    add_listening_options(parser, port=8000, port_type=whole(0, MAX_PORT), token_variable=_TOKEN_VARIABLE)


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, then finishes running requests, for 30 s at most."""
    from verl_agentic.base.errors import DataError

    token, options = token_of(args, token_variable=_TOKEN_VARIABLE), read_options(ServeOptions, args)
    if not (options.model / "config.json").is_file():
        raise DataError(f"no such model folder, got {options.model}; name a Hugging Face folder")
    asyncio.run(_serve_until_stopped(args, options, *token))
    return 0


async def _serve_until_stopped(args: argparse.Namespace, options: ServeOptions, token: str, is_made: bool) -> None:
    from verl_agentic.web.listening.guarded_server import GuardedServer

    with listen(args) as listening:
        served = load_served(
            options.model, name=options.name, tool_format=options.tool_format, max_running=options.max_running,
            threads=options.threads, token=token, device=read_device(options.device),
        )  # fmt: skip
        try:
            from verl_agentic.cpu.serving.http_server import make_app

            http = GuardedServer(make_app(served))
            url = f"{url_of(listening, host=args.host)}/v1"
            print(f"serving {served.name} at {url}, up to {served.engine.max_positions} tokens", flush=True)
            use = f"verl-agentic evaluate --endpoint {url} --model {served.name} --api-key-env {_TOKEN_VARIABLE}"
            print_use(use, token=token, token_variable=_TOKEN_VARIABLE, is_made=is_made)
            await http.serve([listening])
        finally:
            await served.engine.close()


def load_served(
    model: Path,
    *,
    name: str | None,
    tool_format: str,
    max_running: int,
    threads: int | None,
    token: str,
    device: Device = "cpu",
) -> Any:
    """Returns the model of a folder for `cpu.serving.http_server.make_app`; the arguments are the options of
    `serve`."""
    import torch

    from verl_agentic.cpu.inference.inference_engine import InferenceEngine
    from verl_agentic.cpu.inference.scheduler import EngineConfig
    from verl_agentic.cpu.serving.http_server import Served
    from verl_agentic.verl.rollout.model_codec import load_codec

    if threads is not None:
        torch.set_num_threads(threads)
    tokenizer, chat = load_codec(str(model), tool_format=tool_format)
    config = EngineConfig(max_running=max_running)
    engine = InferenceEngine.from_pretrained(model, config, device=device, dtype=dtype_on(device, model))
    return Served(engine=engine, tokenizer=tokenizer, chat=chat, name=name or model.resolve().name, token=token)
