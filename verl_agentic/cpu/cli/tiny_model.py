"""`verl-agentic tiny-model`: writes a tiny random model."""

from __future__ import annotations

from pathlib import Path

from verl_agentic.cli.options.typed_options import Options, declare, typed_command
from verl_agentic.cpu.tiny_model import DEFAULT_PRESET, PRESETS, make_tiny_model


class TinyModelOptions(Options):
    """Options of the model."""

    out: Path = declare("write the model to this folder", is_required=True, metavar="DIR")
    preset: str = declare("make a model of this size (default %(default)s)", DEFAULT_PRESET, choices=sorted(PRESETS))
    seed: int = declare("set the seed of the random weights (default %(default)s)", 0)


def write_tiny_model(options: TinyModelOptions) -> int:
    """Writes the model."""
    count = make_tiny_model(options.out, preset=options.preset, seed=options.seed)
    print(f"{options.out}: {count / 1e6:.2f} M parameters, preset {options.preset}, seed {options.seed}")
    return 0


add_arguments, run = typed_command(TinyModelOptions, write_tiny_model)
