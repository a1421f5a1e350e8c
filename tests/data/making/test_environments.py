"""Environments of a model: only those that `env validate` accepts in a sandbox are kept, and none is imported."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import verl_agentic
from verl_agentic.base.errors import ConfigError
from verl_agentic.data.makers.environments import EnvironmentsMaker
from verl_agentic.data.making.env_gate import BACKENDS, EXAMPLES, EnvGate
from verl_agentic.data.making.make_data import MakingReport, make_data
from verl_agentic.evaluate.cli.env.new import write_examples
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.models.client import Reply
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.log.files.rows import read_rows
from verl_agentic.sandbox.pools.backends import probe

SKELETON = Path(verl_agentic.__file__).parent / "evaluate" / "cli" / "env" / "skeleton"
SOURCES = {name: (SKELETON / name).read_text() for name in ("env.py", "rows.py", "gold.py")}
PATIENCE: Any = {"load_s": 900.0, "validate_s": 900.0}
"""For busy machines."""
_REPLIES: dict[str, list[str]] = {}


class ScriptedModel(ChatModel):
    """Gives its replies in turn."""

    async def ask(self, messages: Any) -> Reply:
        assert "look_up" in messages[-1].content, "the skeleton is shown"
        return Reply(text=_REPLIES[self.model].pop(0))


def reply(*changes: tuple[str, str, str], **files: str) -> str:
    """The skeleton as a reply, with changes of (file, text, other text)."""
    sources = {**SOURCES, **{f"{name}.py": text for name, text in files.items()}}
    for name, text, other in changes:
        assert text in sources[name]
        sources[name] = sources[name].replace(text, other)
    return "Here it is.\n" + "\n".join(f"```python\n# {name}\n{text}```" for name, text in sources.items())


async def run(out: Path, *replies: str, **options: Any) -> MakingReport:
    _REPLIES["m"] = list(replies)
    maker, model = EnvironmentsMaker(**options), ScriptedModel(url="http://none/v1", model="m")
    return await make_data(maker, out, seed=0, n=len(replies), settings=options, model=model, jobs=1)


@pytest.fixture(scope="module")
def sandbox() -> str:
    """A backend that works here."""
    for name in BACKENDS:
        if asyncio.run(probe(name)).works:
            return name
    pytest.skip(f"none of {BACKENDS} works here")


EARNS_ALWAYS = ("env.py", 'Reward(float(is_right and self.row.extra["thing"] in self._looked_up))', "Reward(1.0)")
LEAKS = ("rows.py", 'Message("user", question)', 'Message("user", f"{question} ({stock[thing]})")')
WRITES = "from pathlib import Path\nPath({!r}).write_text('here')\n"


@pytest.mark.slow
async def test_only_environments_that_validate_are_kept(tmp_path: Path, sandbox: str) -> None:
    replies = [reply(), reply(EARNS_ALWAYS), reply(LEAKS)]
    report = await run(tmp_path / "envs.jsonl", *replies, rows=1, sandbox=sandbox, **PATIENCE)
    assert report.rows == 1 and report.dropped == {"null scores 0": 1, "answer is hidden": 1}
    assert "the ground truth is in the prompt" in report.examples["answer is hidden"]
    (row,) = [record for _, record in read_json_lines(tmp_path / "envs.jsonl")]
    folder = tmp_path / "envs" / row["name"]
    assert {path.name for path in folder.iterdir()} == {"__init__.py", *SOURCES, EXAMPLES}
    assert [path.name for path in (tmp_path / "envs").iterdir()] == [row["name"]]
    assert len(read_rows(folder / EXAMPLES)) == 4
    write_examples(folder)  # the kept one loads


@pytest.mark.slow
async def test_code_runs_in_the_sandbox_only_and_cannot_write_outside(tmp_path: Path, sandbox: str) -> None:
    marker, before = tmp_path / "marker", {*sys.modules}
    replies = [reply(env=f"{WRITES.format(str(marker))}{SOURCES['env.py']}"), reply(gold="def gold(row:\n")]
    report = await run(tmp_path / "envs.jsonl", *replies, "I cannot.", sandbox=sandbox, **PATIENCE)
    assert report.rows == 0 and report.dropped == {"it does not run": 2, "no block of a file": 1}
    assert not marker.exists() and not (tmp_path / "envs").exists()
    assert not any("made_0" in name for name in {*sys.modules} - before)


@pytest.mark.slow
async def test_code_that_hangs_is_stopped(tmp_path: Path, sandbox: str) -> None:
    report = await run(tmp_path / "envs.jsonl", reply(rows="while True: pass\n"), load_s=2.0, sandbox=sandbox)
    assert report.rows == 0 and report.dropped == {"no result in time": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import os", "the code may not use this: os in env.py"),
        ("from pathlib import Path", "the code may not use this: pathlib in env.py"),
        ("import verl_agentic.sandbox", "the code may not use this: verl_agentic.sandbox in env.py"),
        ("open('x')", "the code may not use this: open in env.py"),
        ("return", "no Python: the source does not compile in env.py"),
    ],
)
async def test_code_that_reaches_outside_of_its_package_is_refused(line: str, reason: str) -> None:
    files = {**SOURCES, "env.py": f"{SOURCES['env.py']}\n{line}\n"}
    assert await EnvironmentsMaker().verify({"name": "made_0_0", "files": files}) == reason


@pytest.mark.sample(1)
@pytest.mark.parametrize("printed", ["{}", '{"checks": []}', '{"checks": [{"ok": false}]}', "[1]", ""])
async def test_a_validation_that_the_code_ends_is_no_verdict(sandbox: str, printed: str) -> None:
    files = {"__init__.py": f"import os\nprint('{printed}', flush=True)\nos._exit(0)\n"}
    gate = EnvGate(backend=sandbox, **PATIENCE)
    assert await gate.fault("made_0_0", files, count=1) == "no verdict: the code ended the validation"


_OK = '{"env": "x", "ok": true, "rows": 5, "checks": [{"name": "gold scores 1", "ok": true, "problems": []}]}'
_FORGERIES = {
    "prints a verdict and ends": f"import os\nprint({_OK!r}, flush=True)\nos._exit(0)\n",
    "replaces the validator": (
        "from verl_agentic.evaluate.env_validation import validate_env, env_harness, scripted_rewards\n"
        "validate_env._make_finding = lambda name, problems, detail: validate_env.Finding(check=name, status='ok')\n"
        "validate_env.replay_problem = scripted_rewards.script_problems = lambda *a, **b: []\n"
        "env_harness.EnvHarness.run = env_harness.EnvHarness._run_policies = None\n"
    ),
    "prints it at the end": f"import atexit\natexit.register(print, {_OK!r})\n",
    "replaces what answers": (
        "import __main__, sys\n"
        f"for module in (__main__, *list(sys.modules.values())):\n    if hasattr(module, 'answer'):\n"
        f"        module.answer = lambda calls: print({_OK!r})\n"
    ),
    "replaces print and JSON": (
        f"import builtins, json\nsaid = builtins.print\nbuiltins.print = lambda *a, **b: said({_OK!r})\n"
        f"json.dumps = lambda *a, **b: {_OK!r}\n"
    ),
}


@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize("name", _FORGERIES)
async def test_code_cannot_forge_the_verdict_on_itself(sandbox: str, name: str) -> None:
    changed = SOURCES["env.py"].replace(*EARNS_ALWAYS[1:])
    imports = "from .env import make_env\nfrom .gold import gold\nfrom .rows import make_rows\n"
    init = f"{_FORGERIES[name]}\n{imports}"
    gate = EnvGate(backend=sandbox, **PATIENCE)
    reason, examples = await gate.examples("made_0_0", {**SOURCES, "__init__.py": imports})
    assert reason is None and examples
    fault = await gate.fault(
        "made_0_0", {**SOURCES, "env.py": changed, "__init__.py": init, EXAMPLES: examples}, count=1
    )
    assert fault is not None


def test_a_sandbox_without_the_packages_is_refused() -> None:
    with pytest.raises(ConfigError, match="'docker'"):
        EnvironmentsMaker(sandbox="docker")
