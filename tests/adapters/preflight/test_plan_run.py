"""Preflight passes what would train, and finds every fault of the broken configurations, by the right check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from verl.utils.config import omega_conf_to_dataclass

from verl_agentic.base.env import EnvRow
from verl_agentic.base.paths import recipes_dir
from verl_agentic.base.types import Message
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.checks.preflight.result import check_names, judge
from verl_agentic.config.recipe_groups import load_recipe
from verl_agentic.cpu.quickstart.course import load_course
from verl_agentic.data.prepare import make_rows, read_records, to_records, write_parquet
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.verl.extensions.preflight.compose import compose
from verl_agentic.verl.extensions.preflight.plan_run import plan

BROKEN = Path(__file__).parents[2] / "fixtures" / "broken_configs"
FAULTS = sorted(path.stem for path in BROKEN.glob("*.yaml") if not path.stem.startswith("base"))
RECIPES = sorted(path.parent.name for path in recipes_dir().glob("*/grpo.yaml"))
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "r1": ("python_math", {"tool": "none"}),
    "research": ("search_qa", {}),
    "arpo": ("search_qa", {}),
    "router_r1": ("model_router", {}),
    "toolrl": ("function_calling", {"cases": ["single", "multiple", "parallel", "parallel_multiple"]}),
    "ssrl": ("search_qa", {}),
}
"""Systems whose reward is also for a form -> their environment, and options of its rows."""
CODE_ROWS = [
    {
        "data_source": "codecontests",
        "prompt": [{"role": "user", "content": "Read a number and print its double. Answer with one python block."}],
        "reward_model": {"style": "rule", "ground_truth": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'},
        "extra_info": {"index": index},
    }
    for index in range(16)
]


@pytest.fixture(autouse=True)
def _on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def records(env: str, *, count: int, options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    rows = make_rows(load_env_package(env), split="train", count=count, seed=0, options=options)
    return to_records(rows, env_id=env, split="train", agent_name="env_agent")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preflight_data")
    made = records("python_math", count=24)
    write_parquet(made, folder / "train.parquet")
    write_parquet(made[:4], folder / "test.parquet")
    unmet = {**made[5], "reward_model": {**made[5]["reward_model"], "ground_truth": "see the figure"}}
    write_parquet([*made[:5], unmet, *made[6:]], folder / "figure.parquet")
    write_parquet([{**row, "agent_name": "tool_agent"} for row in made], folder / "tool_agent.parquet")
    write_parquet([{k: v for k, v in row.items() if k != "agent_name"} for row in made], folder / "nameless.parquet")
    return folder


@pytest.fixture
def fixtures(monkeypatch: pytest.MonkeyPatch, tiny_model: Path, data: Path) -> None:
    for name, value in {"CONFIGS": BROKEN, "MODEL": tiny_model, "DATA": data}.items():
        monkeypatch.setenv(f"PREFLIGHT_{name}", str(value))


def _course(recipe: str) -> dict[str, Any]:
    """Returns the environment and the options of a recipe, from its course if it has one."""
    if not (recipes_dir() / recipe / "course.yaml").is_file():
        return {"env": recipe}
    course = load_course(recipe)
    return {"env": course.env, "options": dict(course.options)}


def failed(run: PlannedRun) -> dict[str, str]:
    found: dict[str, str] = {}
    for result in judge(run):
        if result.status == "fail":
            found[result.check] = f"{found.get(result.check, '')}{result.found}\n"
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("fixtures")
@pytest.mark.sample(1, slow=5)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_the_check_that_it_belongs_to_and_no_other(name: str) -> None:
    expected, says = (line.partition(": ")[2] for line in (BROKEN / f"{name}.yaml").read_text().split("\n")[:2])
    assert expected in check_names()
    found = failed(plan(BROKEN, name))
    assert list(found) == [expected], found
    assert re.search(says, found[expected]), found[expected]


@pytest.mark.sample(1)
@pytest.mark.usefixtures("fixtures")
@pytest.mark.parametrize("name", ["base", "base_tool_agent"])
def test_what_the_faults_are_made_of_has_none(name: str) -> None:
    run = plan(BROKEN, name, ["hydra.searchpath=[pkg://verl_agentic.config]"])
    assert not failed(run)
    assert run.prompt is not None and run.call is not None


@pytest.mark.slow
@pytest.mark.usefixtures("fixtures")
def test_the_first_prompt_is_that_of_the_policy_where_the_solution_generates_sessions() -> None:
    run = plan(BROKEN, "base", ["hydra.searchpath=[pkg://verl_agentic.config]", "agentic.external_sessions=1"])
    assert run.prompt is not None and run.prompt.text.rstrip().endswith("assistant")


@pytest.mark.sample(1)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_passes(recipe: str, tiny_model: Path, tmp_path: Path) -> None:
    rows = CODE_ROWS if recipe == "sandbox_fusion" else records(**_course(recipe), count=16)
    write_parquet(rows, tmp_path / "rows.parquet")
    overrides = [
        f"actor_rollout_ref.model.path={tiny_model}",
        *(f"data.{split}_files={tmp_path / 'rows.parquet'}" for split in ("train", "val")),
        f"trainer.default_local_dir={tmp_path / 'out'}",
    ]
    # Their models' vocabularies are made for their texts; this one's is not.
    overrides += ["data.max_prompt_length=3072", "data.max_response_length=4096"]
    overrides += ["+actor_rollout_ref.model.override_config.max_position_embeddings=8192"]
    if recipe == "sandbox_fusion":
        overrides.append("reward.sandbox_fusion.url=http://127.0.0.1:1/run_code")
    if recipe == "prime":  # its course trains this model first
        overrides.append(f"++agentic.implicit_reward.model_path={tiny_model}")
    if recipe == "docstrings":  # its embedding model is not on every machine
        overrides.append("agentic.env_config.retriever=bm25")
    run = plan(recipes_dir() / recipe, "grpo", overrides)
    assert not failed(run)
    assert run.prompt is not None and run.prompt.text.rstrip().endswith("assistant")
    assert recipe == "sandbox_fusion" or [trial.outcome for trial in run.gold] == [1.0, 1.0]
    assert not (tmp_path / "out").exists(), "looking at a run leaves nothing of it"


@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize("system", FORMS)
def test_a_solution_has_the_form_that_its_system_rewards(system: str, tiny_model: Path, tmp_path: Path) -> None:
    env, options = FORMS[system]
    write_parquet(records(env, count=16, options=options), tmp_path / "rows.parquet")
    groups = f"agentic/system: {system}, agentic/method: {load_recipe('system', system).noted('method')}"
    (tmp_path / "my_run.yaml").write_text(
        f"defaults: [ppo_trainer, agentic/cpu, {groups}, agentic/scale: cpu_tiny, _self_]\n"
    )
    overrides = [
        "hydra.searchpath=[pkg://verl_agentic.config]",
        f"actor_rollout_ref.model.path={tiny_model}",
        *(f"data.{split}_files={tmp_path / 'rows.parquet'}" for split in ("train", "val")),
        *("data.max_prompt_length=1536", "data.max_response_length=1536"),
    ]
    run = plan(tmp_path, "my_run", overrides)
    found = [finding for finding in judge(run) if finding.check == "reward"]
    if system == "ssrl":
        assert [(finding.status, "nothing answers the searches" in finding.found) for finding in found] == [
            ("not tested", True)
        ] * 2
        return
    assert [finding.status for finding in found] == ["ok"] * 2, found
    assert [trial.outcome for trial in run.gold] == [1.0, 1.0]


ENV = """
from verl_agentic import EnvRow, Message, Reward, ToolEnv
from verl_agentic.base.errors import SandboxUnavailableError, ScoringError

class Env(ToolEnv):
    def __init__(self, row):
        super().__init__(row, tools=[])
{score}

def make_env(row):
    return Env(row)
{gold}
"""
GOLD = "def gold(row):\n    return lambda messages: Message('assistant', row.ground_truth)\n"
SCORE = "    async def score(self, transcript):\n        "
EXACT = SCORE + "return Reward(float(transcript.final_answer == self.row.ground_truth))"


@pytest.mark.sample(1, slow=4)
@pytest.mark.usefixtures("fixtures")
@pytest.mark.parametrize(
    ("score", "gold", "truth", "status", "says"),
    [
        (EXACT, GOLD, "42", "ok", "full outcome"),
        (EXACT, "", "42", "not tested", "no solution"),
        ("", "", "42", "fail", "rubric"),
        ("", GOLD, "42", "fail", "rubric"),
        (SCORE + "return self.tries", GOLD, "42", "fail", "tries"),
        (SCORE + "return Reward(float(self.row.ground_truth in ''))", "", None, "fail", "TypeError"),
        (SCORE + "return Reward(7.0)", GOLD, "42", "warn", "7"),
        (EXACT, GOLD.replace("row.ground_truth", "row.extra['key']"), "42", "fail", "key"),
        (SCORE + "raise SandboxUnavailableError('no engine')", GOLD, "42", "not tested", "no engine"),
        (SCORE + "raise ConnectionRefusedError('judge')", GOLD, "42", "not tested", "judge"),
        (EXACT, GOLD.replace("row.ground_truth", "'wrong'"), "42", "fail", "outcome of 0"),
    ],
)
def test_only_what_gives_right_answers_their_score_is_ok(
    score: str, gold: str, truth: str | None, status: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(ENV.format(score=score, gold=gold))
    rows = [EnvRow(prompt=(Message("user", f"{n}?"),), ground_truth=truth, data_source="x") for n in range(16)]
    made = to_records(rows, env_id=str(tmp_path / "mine"), split="train", agent_name="env_agent")
    write_parquet(made, tmp_path / "rows.parquet")
    files = f"data.train_files={tmp_path / 'rows.parquet'}"
    run = plan(BROKEN, "base", ["hydra.searchpath=[pkg://verl_agentic.config]", files, f"agentic.env={tmp_path}/mine"])
    found = [finding for finding in judge(run) if finding.check == "reward"]
    assert {finding.status for finding in found} == {status}, found
    assert any(says in finding.found for finding in found), found


@pytest.mark.usefixtures("fixtures")
def test_rows_of_another_environment_than_that_of_the_run_fail(data: Path, tmp_path: Path) -> None:
    made = [
        {**row, "extra_info": {**row["extra_info"], "env": "/gone/vault"}}
        for row in read_records(data / "train.parquet")
    ]
    write_parquet(made, tmp_path / "old.parquet")
    overrides = ["hydra.searchpath=[pkg://verl_agentic.config]", f"data.train_files={tmp_path / 'old.parquet'}"]
    found = failed(plan(BROKEN, "base", overrides))
    assert set(found) == {"plugin", "prompt"}
    assert all("extra_info.env='/gone/vault' and agentic.env='python_math'" in message for message in found.values())


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["dr_grpo", "rl_plus", "pacs"])
def test_a_method_without_length_normalisation_divides_by_the_longest_response(method: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"defaults: [ppo_trainer, agentic/plugin, agentic/method: {method}, _self_]\n"
        "data: {max_response_length: 777}\n"
    )
    composed = compose(tmp_path, "run", ["hydra.searchpath=[pkg://verl_agentic.config]"])
    actor = composed.config.actor_rollout_ref.actor
    actor.ppo_micro_batch_size_per_gpu = 1
    assert omega_conf_to_dataclass(actor).loss_scale_factor == composed.config.critic.loss_scale_factor == 777
