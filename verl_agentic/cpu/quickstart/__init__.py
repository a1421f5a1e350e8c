"""`verl-agentic quickstart`: SFT warm start and GRPO through verl's own trainers, on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from verl_agentic.cli.options.device_option import DeviceChoice, device_option, read_device
from verl_agentic.cli.options.typed_options import Options, declare, typed_command


class QuickstartOptions(Options):
    """Options of a quickstart."""

    COMMON = ("recipe", "env", "out", "seed", "device")
    recipe: str | None = declare("train this recipe, a name or the path of a folder, which needs a course.yaml "
                                 "(default quickstart)")  # fmt: skip
    env: str | None = declare("train on this environment, which has no recipe: a folder, a module or a name; it needs "
                              "make_rows, and gold or demonstrator")  # fmt: skip
    out: Path | None = declare("write to this folder (default outputs/RECIPE or outputs/quickstart-ENV, with -vllm, "
                               "-cuda and -control)")  # fmt: skip
    engine: Literal["agentic", "vllm"] = declare("sample the rollouts of GRPO with this engine; vllm must be "
                                                 "installed (default %(default)s)", "agentic")  # fmt: skip
    device: DeviceChoice = device_option("train and evaluate", "cpu")
    seed: int = declare("set the seed of weights, data and sampling (default %(default)s)", 0)
    control: bool = declare("shuffle rewards inside each group, as a control run, which must not improve", False)
    rl_steps: int | None = declare("train this many GRPO steps (default: the recipe's)", min=1)
    sft_steps: int | None = declare("train this many SFT steps (default: the recipe's)", min=1)
    eval_tasks: int | None = declare("evaluate on this many held-out tasks (default: the recipe's)", min=1)
    fresh: bool = declare("repeat every phase, also those that this run or one beside it has finished", False)


def run_quickstart(options: QuickstartOptions) -> int:
    """Runs all unfinished phases and shows the results."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.cpu.quickstart.phases import Quickstart
    from verl_agentic.cpu.quickstart.run_state import RECIPE, QuickstartSettings

    if options.recipe and options.env:
        raise ConfigError(f"--recipe has an environment, got {options.env!r} beside it; leave one of the options out")
    device, recipe = read_device(options.device), options.recipe or "quickstart"
    name = f"quickstart-{Path(options.env.partition(':')[0]).name}" if options.env else Path(recipe).name
    parts = (options.engine, device, "control" if options.control else "")
    name = "-".join([name, *(part for part in parts if part in ("vllm", "cuda", "control"))])
    out = options.out or Path("outputs") / name
    if options.env:
        from verl_agentic.cpu.quickstart.env_recipe import write_env_recipe

        recipe = write_env_recipe(options.env, out / RECIPE)
        print(f"the recipe of {options.env} is in {out / RECIPE}")
    settings = QuickstartSettings(
        recipe=recipe,
        seed=options.seed,
        control=options.control,
        rl_steps=options.rl_steps,
        sft_steps=options.sft_steps,
        eval_tasks=options.eval_tasks,
        engine=options.engine,
        device=device,
    )
    return Quickstart(out, settings, fresh=options.fresh).run()


add_arguments, run = typed_command(QuickstartOptions, run_quickstart)
