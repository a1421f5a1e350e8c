"""Writes docs/environments.md from the cards of the environments, and one picture of an episode for each.

python docs/site/environments_page.py [NAME ...]    # of these (default: those without a picture)
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from verl_agentic.base.errors import MissingDependencyError
from verl_agentic.base.types import Message
from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.evaluate.cli.env.list import describe_envs
from verl_agentic.evaluate.env_validation.env_harness import EnvHarness
from verl_agentic.evaluate.env_validation.validate_env import rows_to_validate

DOCS = Path(__file__).resolve().parents[1]
PICTURES = DOCS / "environments"
_INTRO = """# Environments

For people who look for something to train or evaluate on: every environment that `agentic.env` knows by name.
`python docs/site/environments_page.py` generates this page from the environments.

```bash
verl-agentic env list                 # this table; --json has one object per id
verl-agentic env list {many}   # the ids of one environment
pip install 'verl-agentic[{extra}]'   # what it needs, where the table names an extra
verl-agentic env validate {many}/{task}
```

```yaml
agentic:
  env: {many}/{task}
```

`env list` also shows environments that [other packages install](extending.md#share-it). An id is the name of an
environment, or `NAME/TASK` where an environment has several tasks. Data that is not generated
has the licence in the table. An environment of your own needs no entry here: [Environments, tools, data](extending.md).
"""
_WIDTH, _MAX_LINES, _MAX_CHARS = 100, 40, 1_500
_STYLES = {"system": "dim", "user": "none", "assistant": "bold green", "tool": "cyan"}
# Of `rich`, without its web font.
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, 8)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def page() -> str:
    """Returns the text of the page."""
    envs = {env["family"]: env for env in describe_envs()}
    many = envs["textarena"]
    intro = _INTRO.format(many=many["family"], extra=many["extra"], task=many["ids"][0].partition("/")[2])
    num_ids = sum(len(env["ids"]) for env in envs.values())
    kinds = {env["kind"] for env in envs.values()}
    total = f"{num_ids} ids in {len(envs)} environments of {len(kinds)} kinds.\n"
    return "\n".join([intro, total, *_table(list(envs.values())), *_sections(list(envs.values()))]).rstrip() + "\n"


def _table(envs: Sequence[dict]) -> Iterator[str]:
    yield "| environment | ids | kind | tasks | extra | needs | licence of the data |\n|---|---|---|---|---|---|---|"
    for env in envs:
        extra = f"`{env['extra']}`" if env["extra"] else ""
        cells = [f"[{env['family']}](#{env['family']})", str(len(env["ids"])), env["kind"], env["size"], extra]
        yield f"| {' | '.join([*cells, env['needs'], env['licence']])} |"
    yield ""


def _sections(envs: Sequence[dict]) -> Iterator[str]:
    for env in envs:
        yield f"## {env['family']}\n\n{env['about']}\n"
        if (PICTURES / f"{env['family']}.svg").is_file():
            yield f"![An episode of {env['family']}](environments/{env['family']}.svg)\n"


def _is_drawn(env: Mapping[str, Any]) -> bool:
    """Returns whether an episode can be drawn: not without a solution or a server that the reader must have."""
    return env["gold"] and env["kind"] != "servers"


def draw(name: str) -> None:
    """Writes the picture of the first test row's solution.

    Raises:
        MissingDependencyError: the extra of the environment is not installed.
    """
    package = load_env_package(name)
    messages = asyncio.run(_play(package))
    console = Console(record=True, width=_WIDTH, file=open("/dev/null", "w"))  # noqa: SIM115
    is_ours = package.card is not None and package.card.licence == "Apache-2.0"
    lines = [line for message in messages for line in _lines(message, quotes_all=is_ours)]
    for line in lines[:_MAX_LINES]:
        console.print(line)
    if len(lines) > _MAX_LINES:
        console.print(Text(f"... {len(lines) - _MAX_LINES} lines more", style="dim"))
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(console.export_svg(code_format=_FORMAT, unique_id=name), encoding="utf-8")


def _lines(message: Message, *, quotes_all: bool) -> Iterator[Text]:
    """Yields the lines of a message. `quotes_all=False` quotes two lines of a tool's output, which is not ours."""
    calls = [f"{call.name}({json.dumps(dict(call.arguments))})" for call in message.tool_calls]
    text = "\n".join(part for part in (message.content.strip(), *calls) if part)
    text = text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]} ..."
    text = re.sub(r"(?m)^ +", lambda indent: "\u00a0" * len(indent[0]), text)  # otherwise wrapping removes it
    head = f"{message.role}:\n" if "\n" in text else f"{message.role}: "
    lines = Text(head + text, style=_STYLES[message.role]).wrap(Console(width=_WIDTH), _WIDTH)
    if quotes_all or message.role != "tool" or len(lines) <= 3:
        yield from lines
    else:
        yield from (*lines[:3], Text(f"... {len(lines) - 3} lines more", style="dim"))


async def _play(package: EnvPackage) -> Sequence[Message]:
    from verl_agentic.verl.rollout.model_codec import load_codec

    with tempfile.TemporaryDirectory() as folder:
        make_tiny_tokenizer(Path(folder))
        tokenizer, codec = load_codec(folder)
    tokenizer.model_max_length = 10**9
    row = rows_to_validate(package, count=1)[-1]
    harness = EnvHarness(package=package, rows=[row], codec=codec, tokenizer=tokenizer, config={})
    (episode,) = await harness.run_solution()
    return episode.messages


def main(names: Sequence[str]) -> None:
    """Draws what is missing, or `names`, and writes the page."""
    for env in describe_envs():
        name = env["family"]
        if name in names or (not names and _is_drawn(env) and not (PICTURES / f"{name}.svg").is_file()):
            try:
                draw(name)
            except MissingDependencyError as cause:
                print(f"{name}: no picture, {cause}", file=sys.stderr)
    (DOCS / "environments.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
