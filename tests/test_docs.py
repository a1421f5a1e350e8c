"""The code in the docs runs, and their links lead somewhere."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import verl_agentic
from verl_agentic import cli
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.types import Action, Message, StopReason, ToolCall
from verl_agentic.episode.env_package import load_env
from verl_agentic.evaluate.cli.env.list import describe_envs
from verl_agentic.methods import progress_model
from verl_agentic.rewards.component import load_component
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "recipes").glob("*/README.md")),
    *sorted((ROOT / "verl_agentic" / "config" / "agentic" / "system").glob("*.md")),
]


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def write_environment(page: Path, folder: Path, *, max_lines: int) -> str:
    """Makes the folder that a reader would make of the first environment of a page."""
    code = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line]) <= max_lines
    folder.mkdir()
    (folder / "__init__.py").write_text(code)
    return str(folder)


@pytest.fixture
def capitals(tmp_path: Path) -> str:
    return write_environment(ROOT / "docs" / "extending.md", tmp_path / "capitals", max_lines=16)


def test_the_environment_of_the_docs_can_be_played(capitals: str) -> None:
    row = EnvRow(prompt=(Message("user", "Capital of Kenya?"),), ground_truth="Nairobi")

    async def play(country: str, answer: str) -> tuple[str, float]:
        env = load_env(capitals)(row)
        prompt = await env.start()
        calls = Action(turn=0, text="", content="", tool_calls=(ToolCall("lookup", {"country": country}),))
        observation = await env.step(calls)
        last = Action(turn=1, text=answer, content=answer)
        assert (await env.step(last)).stop is StopReason.ANSWERED
        messages = (*prompt, calls.to_message(), *observation.messages, last.to_message())
        transcript = Transcript(messages=messages, actions=(calls, last), stop_reason=StopReason.ANSWERED)
        return observation.messages[0].content, (await env.score(transcript)).outcome

    assert asyncio.run(play("Kenya", "Nairobi\n")) == ("Nairobi", 1.0)
    for wrong in ("Paris", "Nairobi or Paris", "not Nairobi", "<think>Nairobi</think>", "Nairo", ""):
        assert asyncio.run(play("Kenya", wrong)) == ("Nairobi", 0.0)
    told, _ = asyncio.run(play("Atlantis", "Nairobi"))
    assert told == "Error: 'lookup' failed on these arguments: KeyError: 'Atlantis'"


@pytest.mark.slow
def test_the_environment_of_the_readme_rewards_solutions_only(tmp_path: Path) -> None:
    folder = write_environment(ROOT / "README.md", tmp_path / "doors", max_lines=22)
    assert cli.main(["env", "validate", folder]) == 0


async def test_the_tool_of_the_docs_answers() -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)[1]
    space: dict[str, Any] = {}
    exec(compile(code, "extending.md", "exec", dont_inherit=True), space)
    convert = space["convert"]
    assert (await convert.call({"amount": 2, "unit": "mile"})).content == "3218.69 m"
    assert (await convert.call({"amount": -1})).is_error and convert.timeout_s == 10
    assert convert.schema["function"]["parameters"]["properties"]["unit"]["description"] == "the unit of the amount."


def test_links_lead_to_files_that_are_there() -> None:
    pages = (*PAGES, *NOTEBOOKS)
    links = {(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())}
    missing = [(page, link) for page, link in links if "://" not in link and not (page.parent / link).exists()]
    assert links and not missing


def test_modules_and_files_named_in_the_docs_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    modules = set(re.findall(r"`(verl_agentic(?:\.[a-z_]+)+)", text))
    files = set(re.findall(r"`((?:tests|recipes|verl_agentic|benchmarks|studies|envs)/[\w/.]+)`", text))
    assert modules and not [name for name in modules if importlib.util.find_spec(_module(name)) is None]
    assert files and not [name for name in files if not (ROOT / name).exists()]


def _module(name: str) -> str:
    """Returns the longest part of a dotted name that could be a module: names of functions and public names go."""
    parts = name.split(".")
    if len(parts) == 2 and parts[1] in dir(verl_agentic):
        return parts[0]
    folder = ROOT.joinpath(*parts[:-1])
    is_attribute = folder.with_suffix(".py").is_file()
    return ".".join(parts[:-1] if is_attribute else parts)


def test_the_rubrics_of_the_docs_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_model, "load_progress_model", lambda folder: lambda sample: [])  # nobody trained it
    text = (ROOT / "docs" / "rewards.md").read_text()
    path = tmp_path / "my_rewards.py"
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    path.write_text("\n".join(block for block in blocks if "def exact" in block or "def unsafe_calls" in block))
    monkeypatch.chdir(tmp_path)
    sections = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    roots = [section.get("agentic", {}) for section in sections if isinstance(section, dict)]
    rubrics = [root["rubric"] for root in roots if "rubric" in root]
    assert rubrics and all(Rubric.from_config({"rubric": rubric}).outcomes for rubric in rubrics)
    (judge,) = next(section for section in sections if isinstance(section, list))
    assert Rubric.from_mapping({"components": [{"use": "math"}, judge]}).term("judge").timeout_s == 120
    component = load_component(f"{path}:exact").make({"ignore_case": True})
    said = Sample(id="a", prompt=(), turns=(), final_answer="YES", stop_reason=StopReason.ANSWERED, ground_truth="yes")
    assert component(said) == 1.0


def test_every_folder_of_the_package_has_a_line_in_the_contributors_map() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text()
    text = text[text.index("## Where things live") : text.index("## Add something")]
    named = set(re.findall(r"`([a-z_]+)/`", text))
    folders = {path.parent.name for path in (ROOT / "verl_agentic").glob("*/**/__init__.py")} - {"skeleton", "quill"}
    folders -= {path.parent.name for path in (ROOT / "verl_agentic" / "bridges").glob("*/__init__.py")}
    assert named - {"agentic", "envs", "recipes", "benchmarks", "studies", "tests", "verl_agentic"} == folders


@pytest.mark.slow
def test_the_page_of_papers_is_current() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "site" / "papers_page.py"))["page"]()
    assert (ROOT / "docs" / "papers.md").read_text() == written, "run python docs/site/papers_page.py"


def test_the_page_of_environments_is_current_and_shows_an_episode_of_each() -> None:
    module = runpy.run_path(str(ROOT / "docs" / "site" / "environments_page.py"))
    text = (ROOT / "docs" / "environments.md").read_text()
    assert text == module["page"](), "run python docs/site/environments_page.py"
    drawn = [env["family"] for env in describe_envs() if env["gold"] and env["kind"] != "servers"]
    assert len(drawn) > 10 and all(f"environments/{name}.svg" in text for name in drawn)


def test_the_pages_of_recipes_are_current() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "site" / "recipes_page.py"))["pages"]()
    stale = [path.name for path, text in pages.items() if path.read_text() != text]
    assert len(pages) == 3 and not stale, "run python docs/site/recipes_page.py"


def test_the_page_of_metrics_is_current() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "site" / "metrics_page.py"))["page"]()
    assert (ROOT / "docs" / "metrics.md").read_text() == written, "run python docs/site/metrics_page.py"


def test_every_registered_method_with_a_paper_is_on_the_page_of_papers() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    folders = (
        "graders/components",
        "credit/advantages",
        "credit/policy_losses",
        "graders/components",
        "methods/advantages",
        "methods/policy_losses",
        "sampling/gates",
        "sampling/curricula",
    )
    files = [path for folder in folders for path in (ROOT / "verl_agentic" / folder).glob("*.py")]
    cited = [path for path in files if re.search("Papers?: ", path.read_text())]
    missing = [path for path in cited if f"`{path.relative_to(ROOT)}`" not in text]
    assert len(cited) > 50 and not missing


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r"([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    recipes = [str(path.relative_to(ROOT)) for path in (ROOT / "recipes").glob("*/README.md")]
    notebooks = [f"notebooks/{path.stem}.md" for path in NOTEBOOKS]
    assert sorted(listed) == sorted(["index.md", *pages, *recipes, *notebooks])


def test_every_object_of_the_api_reference_exists() -> None:
    names = re.findall(r"^::: (.+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    places = [name.rpartition(".") for name in names]
    missing = [name for module, _, name in places if not hasattr(importlib.import_module(module), name)]
    assert names and not missing


def test_the_index_for_language_models_is_current() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "site" / "llms_page.py"))["page"]()
    assert (ROOT / "llms.txt").read_text() == written, "run python docs/site/llms_page.py"


def _read_commands(page: Path) -> list[list[str]]:
    """Returns the words of the commands `verl-agentic ...` in blocks of bash, without `...` and `&`."""
    if page.suffix == ".ipynb":
        cells = ["".join(cell["source"]) for cell in json.loads(page.read_text())["cells"]]
        blocks = [cell for cell in cells if cell.startswith("%%bash")]
    else:
        blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.lstrip().startswith("verl-agentic ")]
    return [[word for word in words[1:] if word not in ("...", "&")] for words in commands]


def test_commands_of_the_docs_have_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, num_parsed = [], 0
    for page in (*PAGES, *NOTEBOOKS):
        for words in _read_commands(page):
            parser = argparse.ArgumentParser(prog=words[0])
            cli._load_command(words[0]).add_arguments(parser)
            try:
                cli._parse_arguments(parser, words[1:])
            except SystemExit:
                error = capsys.readouterr().err.splitlines()[-1]
                if "are required" not in error:  # a page may leave out what an earlier command has
                    wrong.append((page.name, shlex.join(words), error))
            num_parsed += 1
    assert not wrong
    assert num_parsed > 100
