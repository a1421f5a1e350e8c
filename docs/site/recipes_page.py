"""Writes docs/recipes.md, docs/methods.md and docs/recipe_values.md from the config groups of recipes.

python docs/site/recipes_page.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from verl_agentic.base.paths import recipes_dir
from verl_agentic.config.recipe_groups import GROUPS, Recipe, load_recipe, recipe_names
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.cpu.quickstart.stage_list import load_stages

DOCS = Path(__file__).resolve().parents[1]
_SYSTEMS = "../verl_agentic/config/agentic/system"
_ACTOR = "actor_rollout_ref.actor"
_RECIPES = """# Recipes

For people with GPUs and a paper in mind: the configuration of a published system, of a method and of a scale, each in
one line. `python docs/site/recipes_page.py` generates the tables from the YAML files.

```bash
verl-agentic recipes                                    # some systems, the general methods, all scales; --all
verl-agentic recipes search_r1 --method dapo            # config, commands, values with their sources, README
verl-agentic recipes search_r1 --method dapo --write my_run.yaml
verl-agentic recipes search_r1 --toy                    # rows that this package makes, not the paper's data
verl-agentic recipes inspo                              # any other name: where it is, what differs from the paper
```

The first line says what differs most from the paper. The commands [import](data_import.md) the data set of the paper
where it is public and an environment takes it.

```yaml
# my_run.yaml
hydra: {searchpath: [pkg://verl_agentic.config]}
defaults:
  - ppo_trainer
  - agentic/plugin
  - agentic/system: search_r1
  - agentic/method: dapo
  - agentic/scale: qwen2_5_7b_8gpu
  - _self_
data: {train_files: data/search_qa/train.parquet, val_files: data/search_qa/test.parquet}
trainer: {default_local_dir: runs/my_run}
```

```bash
verl-agentic prepare search_qa                          # the rows of --toy
verl-agentic preflight --config-dir . --config-name my_run
verl-agentic dryrun --config-dir . --config-name my_run
python -m verl.trainer.main_ppo --config-dir . --config-name my_run
```

## Combine

| group | sets |
|---|---|
| `agentic/system` | environment, protocol, limits, reward; batch size, group size, lengths, learning rate, steps |
| `agentic/method` | estimator, loss, clip, KL, entropy, critic, gates, replay, branching: [Methods](methods.md) |
| `agentic/scale` | model, rollout engine, FSDP2 or Megatron, parallel sizes, offload, token budgets, GPUs |

The groups set different keys, so every system goes with every method and scale. Your own keys come after them: in
`my_run.yaml`, or on the command line. Each group is optional. Your own environment with `agentic/method: gspo` and
`agentic/scale: qwen3_8b_8gpu` is a config of a few lines.

Three things do not follow from a name:

- **A scale bounds lengths.** An episode has at most `ppo_max_token_len_per_gpu` times
  `ulysses_sequence_parallel_size` tokens. `preflight` refuses longer ones.
- **Methods need a group size or a critic.** Methods that compare siblings need `rollout.n` of at least 2. A critic
  needs memory. `preflight` reports both.
- **Megatron has fewer keys.** `scale: qwen3_8b_8gpu_megatron` goes with all systems but `rlvrr`, which sets a schedule
  of FSDP's optimizer. Losses and critics that need FSDP are marked in [Credit](credit.md).

**Sources.** Every value has its source as the comment on its line: a section of the paper, a file of the authors' code,
an example of verl, or `ours`, where no source has a value. Where sources differ, the comment says which one is taken.
[Values of the recipes](recipe_values.md) lists all of them.

**Status.** For every system, `make test-recipes` runs preflight and one training step of its own config on a CPU, with
a tiny model, in its own environment, with its own protocol and reward, and every stage of every
[course](#courses). **None of them was run by us on GPUs.** Where
the environment of the authors is missing here, the table names both. The README of a system says what else differs.

"""
_METHODS = """# Methods

For people who choose a training method: each one is a file of `agentic/method` that sets every half of the method.
`python docs/site/recipes_page.py` generates this page from the YAML files. [Credit](credit.md) explains estimators
and losses, [Sampling](sampling.md) gates, [Recipes](recipes.md) how to combine.

"""
_VALUES = """# Values of the recipes

For people who ask where a number of a recipe comes from: all values of systems and scales, with their sources.
`python docs/site/recipes_page.py` generates this page from the YAML files. [Methods](methods.md) has those of methods.

"""


def pages() -> dict[Path, str]:
    """Returns file -> text."""
    of = {group: [load_recipe(group, name) for name in recipe_names(group)] for group in GROUPS}
    texts = {
        "recipes.md": [_RECIPES, *_overview(of), *_courses()],
        "methods.md": [_METHODS, *_comparison(of["method"]), *_sections(of["method"], level="##")],
        "recipe_values.md": [
            _VALUES,
            *(line for group in ("system", "scale") for line in (f"## {group.title()}s\n", *_sections(of[group]))),
        ],
    }
    return {DOCS / name: re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n" for name, parts in texts.items()}


def _overview(of: dict[str, list[Recipe]]) -> Iterator[str]:
    yield "## Systems\n"
    yield from _table(
        ["`agentic/system`", "in short", "environment", "method", "scale"],
        (
            [
                f"[{recipe.name}]({_SYSTEMS}/{recipe.name}.md)",
                _in_short(recipe, *(one for one in of["method"] if one.name == recipe.noted("method"))),
                _environment(recipe),
                *(f"`{name}`" if name else "" for name in (recipe.noted("method"), recipe.noted("scale"))),
            ]
            for recipe in of["system"]
        ),
    )
    yield "\n## Reported results\n"
    yield "What the authors of the systems report, and where. These are not results of the recipes.\n"
    reported = ([f"[{system.name}]({_SYSTEMS}/{system.name}.md)", _reported(system)] for system in of["system"])
    yield from _table(["`agentic/system`", "reported"], reported)
    for group in ("method", "scale"):
        yield f"\n## {group.title()}s\n"
        rows = ([f"`{recipe.name}`", _in_short(recipe)] for recipe in of[group])
        yield from _table([f"`agentic/{group}`", "in short"], rows)


def _in_short(*recipes: Recipe) -> str:
    """Returns title and summary of the first file, and what the files say that differs in the method itself."""
    differs = [
        f"**Differs from the paper:** {recipe.noted('differs')}." for recipe in recipes if recipe.noted("differs")
    ]
    return " ".join([f"**{recipes[0].title}**: {recipes[0].summary}", *differs])


def _courses() -> Iterator[str]:
    yield "\n## Courses\n"
    yield "Recipes of several stages, for a laptop. [Courses](courses.md) explains how to write one.\n"
    rows = []
    for path in sorted(recipes_dir().glob("*/course.yaml")):
        name, about = path.parent.name, path.with_name("README.md").read_text().split("\n\n")[1].replace("\n", " ")
        if "stages" in yaml.safe_load(path.read_text()):
            stages = ", ".join(stage.name for stage in load_stages(load_course(name)))
            rows.append([f"[{name}](../recipes/{name}/README.md)", about, stages])
    yield from _table(["`quickstart --recipe`", "in short", "stages"], rows)


def _reported(system: Recipe) -> str:
    found = re.search(r"^\| reported \| (.+) \|$", system.readme, re.MULTILINE)
    assert found is not None, f"the README of {system.name} has no row `reported`"
    return found[1]


def _environment(system: Recipe) -> str:
    """Returns the environment, and that of the authors if the README says that it is another one."""
    own = f"`{name}`" if (name := system.value("agentic.env")) else ""
    theirs = re.search(r"^\| environment \| ([^|]+) \| [^|]+ \|$", system.readme, re.MULTILINE)
    return f"{own} instead of {theirs[1]}" if theirs else own


def _comparison(methods: list[Recipe]) -> Iterator[str]:
    """Yields the table of all methods side by side."""
    yield from _table(
        ["method", "estimator", "loss", "clip", "aggregation", "KL", "critic", "gates"],
        (
            [
                f"[{method.name}](#{method.name})",
                f"`{method.value('algorithm.adv_estimator')}`",
                f"`{method.value(f'{_ACTOR}.policy_loss.loss_mode')}`",
                f"{method.value(f'{_ACTOR}.clip_ratio_low'):g}, {method.value(f'{_ACTOR}.clip_ratio_high'):g}",
                str(method.value(f"{_ACTOR}.loss_agg_mode")),
                _kl(method),
                "yes" if method.value("critic.enable") else "",
                _gates(method),
            ]
            for method in methods
        ),
    )
    yield ""


def _kl(method: Recipe) -> str:
    if method.value(f"{_ACTOR}.use_kl_loss"):
        return f"loss, {_number(method.value(f'{_ACTOR}.kl_loss_coef'))}"
    if method.value("algorithm.use_kl_in_reward"):
        return f"reward, {_number(method.value('algorithm.kl_ctrl.kl_coef'))}"
    return ""


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else "verl's default"


def _gates(method: Recipe) -> str:
    listed = method.value("agentic.sampling.gates")
    entries = [value.value for value in method.values if value.key.startswith("agentic.sampling.gates[")]
    gates = [*(listed or []), *entries]
    return ", ".join(gate if isinstance(gate, str) else gate["name"] for gate in gates)


def _sections(recipes: Iterable[Recipe], *, level: str = "###") -> Iterator[str]:
    for recipe in recipes:
        yield f"{level} {recipe.name}\n\n**{recipe.title}**: {recipe.summary}\n"
        yield from (f"- {key}: {_linked(value)}" for key, value in recipe.header)
        yield ""
        yield from _table(
            ["key", "value", "source"],
            (
                [
                    f"`{value.key}`",
                    f"`{value.text}`",
                    _source(value.source, "" if value.recipe == recipe.name else value.recipe),
                ]
                for value in recipe.values
            ),
        )
        yield ""


def _source(text: str, inherited: str) -> str:
    return f"`{inherited}`: {text}" if inherited else text


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        # A | inside of a cell would end it.
        yield f"| {' | '.join(_linked(cell).replace('|', chr(92) + '|') for cell in row)} |"


def _linked(text: str) -> str:
    """Returns a text with its addresses as links, except in code."""
    return re.sub(r"(`[^`]*`)|(?<![(<])(https?://[^\s),;]*[^\s),;.])", lambda found: found[1] or f"<{found[2]}>", text)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
