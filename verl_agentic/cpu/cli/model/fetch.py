"""`verl-agentic model fetch`: brings a small pretrained model onto this machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="fetch this known model; without a name and another "
                        "source, list the known models")  # fmt: skip
    parser.add_argument("--from-gguf", type=Path, metavar="FILE", help="convert this GGUF file; with NAME it must be "
                        "the file of that model")  # fmt: skip
    parser.add_argument("--from-hub", metavar="OWNER/MODEL", help="fetch this model of the Hugging Face hub")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the model to this folder, which is replaced "
                        "(default: a folder in the user's cache)")  # fmt: skip
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="write weights of this type "
                        "(default bfloat16; float32 for embedding models)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Fetches the model and prints its folder, or lists the known models; returns 0."""
    from verl_agentic.base.errors import ConfigError

    if args.from_hub and (args.name or args.from_gguf):
        raise ConfigError("a model has one source, got --from-hub and another one; leave one out")
    if not (args.name or args.from_gguf or args.from_hub):
        _show_models()
        return 0
    from verl_agentic.cpu.model_fetch.fetch import fetch_from_hub, fetch_model, folder_of
    from verl_agentic.cpu.model_fetch.gguf_folder import convert_gguf
    from verl_agentic.cpu.model_fetch.known_models import known_model

    is_embedding = args.name and known_model(args.name).use == "embedding"
    dtype = args.dtype or ("float32" if is_embedding else "bfloat16")
    out = args.out or folder_of(args.name or args.from_hub or args.from_gguf.stem, dtype=dtype)
    if args.from_hub:
        model = fetch_from_hub(args.from_hub, out, dtype=dtype)
    elif args.name:
        model = fetch_model(args.name, out, dtype=dtype, gguf=args.from_gguf)
    else:
        model = convert_gguf(args.from_gguf, out, dtype=dtype)
    for note in model.notes:
        print(f"note: {note}")
    end = f", turns end with {model.end_token}" if model.end_token else ""
    print(f"{out}: {model.parameters / 1e6:.1f} M parameters, {dtype}{end}")
    return 0


def _show_models() -> None:
    from rich.console import Console
    from rich.table import Table

    from verl_agentic.cpu.model_fetch.known_models import MODELS

    table = Table(title="verl-agentic model fetch NAME", title_justify="left")
    for column in ("name", "licence", "parameters", "download", "from"):
        table.add_column(column, no_wrap=True)
    table.add_column("model", overflow="fold")
    for name, model in MODELS.items():
        source = "hub" if model.packaged is None else "PyPI"
        hub = model.hub if model.use == "generation" else f"{model.hub} ({model.use})"
        table.add_row(name, model.licence, f"{model.parameters_m} M", f"{model.download_mb} MB", source, hub)
    Console().print(table)
