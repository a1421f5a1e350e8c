"""`verl-agentic play`: asks a checkpoint one question and shows the episode."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.cli.options.device_option import add_device_option, dtype_on, read_device
from verl_agentic.cli.options.numbers import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("question", help="ask this question")
    checkpoint = Path("outputs/quickstart/checkpoint")
    parser.add_argument(
        "--model", type=Path, default=checkpoint, metavar="DIR", help="load this checkpoint (default %(default)s)"
    )
    parser.add_argument("--env", default="python_math", help="use this environment (default %(default)s)")
    parser.add_argument(
        "--protocol", default="chat", metavar="NAME", help="write turns in this protocol (default %(default)s)"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="sample at this temperature; 0 is greedy (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="set the seed of sampling (default %(default)s)")
    parser.add_argument(
        "--max-turns", type=whole(1), default=8, help="stop after this many turns (default %(default)s)"
    )
    parser.add_argument(
        "--max-tokens", type=whole(1), default=512, help="stop after this many response tokens (default %(default)s)"
    )
    add_device_option(parser, work="run the model")


def run(args: argparse.Namespace) -> int:
    """Runs the episode and prints its messages."""
    from rich.console import Console
    from rich.text import Text

    from verl_agentic.base.env import EnvRow
    from verl_agentic.base.errors import DataError
    from verl_agentic.base.types import Message
    from verl_agentic.episode.env_package import load_env
    from verl_agentic.episode.limits import EpisodeLimits
    from verl_agentic.evaluate.local_model import LocalModel
    from verl_agentic.verl.rollout.model_codec import load_codec

    if not (args.model / "config.json").is_file():
        raise DataError(f"no such model folder, got {args.model}; run `make quickstart`, or name a Hugging Face folder")
    device = read_device(args)
    tokenizer, codec = load_codec(str(args.model), protocol=args.protocol)
    model = LocalModel(
        model_path=args.model,
        tokenizer=tokenizer,
        codec=codec,
        make_env=load_env(args.env),
        limits=EpisodeLimits(
            max_response_tokens=args.max_tokens, max_context_tokens=args.max_tokens + 2_048, max_turns=args.max_turns
        ),
        device=device,
        dtype=dtype_on(device, args.model),
    )
    # The user's question has no ground truth, so there is no score.
    row = EnvRow(prompt=(Message("user", args.question),), ground_truth="0")
    (episode,) = model.run([row], temperature=args.temperature, seed=args.seed)
    console = Console()
    for trajectory in episode.trajectories:
        console.print(Text(tokenizer.decode(trajectory.prompt_ids), style="dim"), end="")
        for segment in trajectory.segments():
            text = tokenizer.decode(trajectory.response_ids[segment.start : segment.end])
            console.print(Text(text, style="bold green" if segment.kind.value == "model" else "dim"), end="")
    console.print(f"\n[dim]stopped: {episode.stop_reason.value}[/dim]")
    return 0 if episode.error is None else 1
