"""`verl-agentic play`: asks a checkpoint one question and shows the episode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.device_option import DeviceChoice, device_option, dtype_on, read_device
from verl_agentic.cli.options.typed_options import Options, declare, typed_command

if TYPE_CHECKING:
    from verl_agentic.base.env import EnvRow


class PlayOptions(Options):
    """Options of an episode."""

    question: str = declare("ask this question", is_required=True, is_positional=True)
    model: Path = declare("load this checkpoint (default %(default)s)", Path("outputs/quickstart/checkpoint"),
                          metavar="DIR")  # fmt: skip
    env: str = declare("use this environment (default %(default)s)", "python_math")
    rows: Path | None = declare("take the row with this question from this file, with all that the environment needs",
                                metavar="FILE")  # fmt: skip
    config: Sequence[str] = declare("pass an argument to make_env", (), metavar="KEY=VALUE")
    protocol: str = declare("write turns in this protocol (default %(default)s)", "chat", metavar="NAME")
    temperature: float = declare("sample at this temperature; 0 is greedy (default %(default)s)", 0.0)
    seed: int = declare("set the seed of sampling (default %(default)s)", 0)
    max_turns: int = declare("stop after this many turns (default %(default)s)", 8, min=1)
    max_tokens: int = declare("stop after this many response tokens (default %(default)s)", 512, min=1)
    device: DeviceChoice = device_option("run the model")


def play_question(options: PlayOptions) -> int:
    """Runs the episode and prints its messages."""
    from rich.console import Console
    from rich.text import Text

    from verl_agentic.base.errors import DataError
    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
    from verl_agentic.episode.env_package import load_env
    from verl_agentic.evaluate.local_model import LocalModel
    from verl_agentic.verl.rollout.model_codec import load_codec

    if not (options.model / "config.json").is_file():
        raise DataError(
            f"no such model folder, got {options.model}; run `make quickstart`, or name a Hugging Face folder"
        )
    device = read_device(options.device)
    tokenizer, codec = load_codec(str(options.model), protocol=options.protocol)
    model = LocalModel(
        model_path=options.model,
        tokenizer=tokenizer,
        codec=codec,
        make_env=load_env(options.env, **parse_key_values(options.config, option="--config")),
        limits=EpisodeLimits(
            max_response_tokens=options.max_tokens,
            max_context_tokens=options.max_tokens + 2_048,
            max_turns=options.max_turns,
        ),
        device=device,
        dtype=dtype_on(device, options.model),
    )
    (episode,) = model.run([_make_row(options)], temperature=options.temperature, seed=options.seed)
    console = Console()
    for trajectory in episode.trajectories:
        console.print(Text(tokenizer.decode(trajectory.prompt_ids), style="dim"), end="")
        for segment in trajectory.segments():
            text = tokenizer.decode(trajectory.response_ids[segment.start : segment.end])
            console.print(Text(text, style="bold green" if segment.kind.value == "model" else "dim"), end="")
    console.print(f"\n[dim]stopped: {episode.stop_reason.value}[/dim]")
    return 0 if episode.error is None else 1


def _make_row(options: PlayOptions) -> EnvRow:
    """Returns the row of the question. Without a file it has no ground truth, so there is no score.

    Raises:
        DataError: the file has no row with this question.
    """
    from verl_agentic.base.env import EnvRow
    from verl_agentic.base.errors import DataError
    from verl_agentic.base.types import Message
    from verl_agentic.log.files.rows import read_rows

    prompt = (Message("user", options.question),)
    if options.rows is None:
        return EnvRow(prompt=prompt, ground_truth="0")
    row = next((row for row in read_rows(options.rows) if row.prompt == prompt), None)
    if row is None:
        raise DataError(f"no row of {options.rows} has this question, got {options.question!r}; copy one from the file")
    return row


add_arguments, run = typed_command(PlayOptions, play_question)
