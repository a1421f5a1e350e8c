"""`verl-agentic recipes`: lists, shows and writes combinations of the groups."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from verl_agentic.cli import main
from verl_agentic.config import recipe_groups
from verl_agentic.config.recipe_groups import GROUPS, load_recipe, recipe_names
from verl_agentic.data.importing.formats import FORMATS

SYSTEMS = Path(str(recipe_groups.__file__)).parent / "agentic" / "system"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["recipes", *arguments]) == 0
    return capsys.readouterr().out


def can_be_tiny(system: str) -> bool:
    """Tells whether main_ppo trains a system on rows of `prepare`. Prompts of swe_rl hold files of any size."""
    recipe, readme = (SYSTEMS.joinpath(f"{system}.{ending}").read_text() for ending in ("yaml", "md"))
    return (
        ("\nverl-agentic prepare" in readme or "\n# toy:" in recipe)
        and "\n# trainer:" not in recipe
        and system != "swe_rl"
    )


def toy_option(system: str) -> list[str]:
    """Returns the option that makes the rows of a system here."""
    return ["--toy"] if load_recipe("system", system).noted("toy") else []


def config_in(text: str) -> dict:
    """Returns the config at the start of what is shown."""
    return yaml.safe_load(text[: text.index("\n\n")])


def test_every_file_of_every_group_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [" ".join(line.split()) for line in shown(capsys, "--all").splitlines()]
    for group in GROUPS:
        for name in recipe_names(group):
            recipe = load_recipe(group, name)
            assert f"{name} {recipe.title}: {recipe.summary}" in lines


def test_the_short_list_has_few_systems_and_no_method_of_one_system(capsys: pytest.CaptureFixture[str]) -> None:
    names = [line.split()[0] for line in shown(capsys).split("agentic/scale")[0].splitlines() if line.strip()]
    systems = set(recipe_names("system")) & set(names)
    assert len(systems) == 8
    assert {"dapo", "gigpo", "ppo"} <= set(names) and "spa_rl" not in names and "coderl" not in names


def test_a_method_in_the_place_of_a_system_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--method dapo" in shown(capsys, "dapo")
    assert main(["recipes", "dapo", "--scale", "cpu_tiny"]) == 2 and "--method dapo" in capsys.readouterr().err


def test_a_system_comes_with_its_authors_method_and_the_nearest_scale(capsys: pytest.CaptureFixture[str]) -> None:
    system, text = load_recipe("system", "search_r1"), shown(capsys, "search_r1")
    assert config_in(text)["defaults"] == [
        *("ppo_trainer", "agentic/plugin", {"agentic/system": "search_r1"}),
        *({"agentic/method": system.noted("method")}, {"agentic/scale": system.noted("scale")}, "_self_"),
    ]
    assert system.readme in text
    for value in system.values:
        assert re.search(rf"{re.escape(value.key)} +{re.escape(value.text)} +{re.escape(value.source)}", text)


def test_method_and_scale_are_choices(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "search_r1", "--method", "gspo", "--scale", "cpu_tiny")
    assert config_in(text)["defaults"][1:-1] == [
        *("agentic/cpu", {"agentic/system": "search_r1"}, {"agentic/method": "gspo"}, {"agentic/scale": "cpu_tiny"})
    ]
    assert "VERL_PLATFORM=cpu python -m verl.trainer.main_ppo --config-dir . --config-name my_run" in text
    assert "agentic/system" not in (alone := shown(capsys, "--method", "gspo")) and "agentic/method: gspo" in alone


@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize("name", [name for name in recipe_names("system") if can_be_tiny(name)])
def test_the_commands_of_a_tiny_model_make_a_run_that_can_start(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verl")
    from system_runs import prepared

    from verl_agentic.checks.preflight.result import judge
    from verl_agentic.verl.extensions.preflight.plan_run import plan

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    text = shown(capsys, name, "--scale", "cpu_tiny", "--write", "tiny.yaml", *toy_option(name))
    text = text[text.rindex("verl-agentic tiny-model") :]
    lines = text[: text.index(" preflight ")].replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("verl-agentic ")]
    config = yaml.safe_load(Path("tiny.yaml").read_text())
    assert commands[0][1] == "tiny-model" and main(commands[0][1:]) == 0
    for words in commands[1:]:
        if words[1] == "prepare":
            prepared(words[2:], Path(config["data"]["train_files"]).parent, count=16)
    run = plan(Path(), "tiny")
    assert [finding for finding in judge(run) if finding.status == "fail"] == []
    assert run.total_steps == 4 and run.model is not None


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", recipe_names("system"))
def test_the_rows_are_those_that_the_commands_make(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, name)
    readme = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    files = {key: file for key, file in config_in(text)["data"].items() if key.endswith("_files")}
    assert files and files == {key: file for key, file in readme["data"].items() if key.endswith("_files")}
    commands = text[: text.index("--config-name my_run")].replace("\\\n", " ")
    prepared = [
        shlex.split(line, comments=True)
        for line in re.findall(r"^verl-agentic (?:prepare|data import) .*", commands, re.M)
    ]
    folders = [words[words.index("--out") + 1] if "--out" in words else f"data/{words[2]}" for words in prepared]
    for file in files.values():
        assert str(Path(file).parent) in folders or file in commands[commands.index("trainer:") :]


WITH_DATA = [name for name in recipe_names("system") if load_recipe("system", name).noted("toy")]


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", WITH_DATA)
def test_toy_rows_replace_the_commands_of_the_data_set_in_the_same_folder(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    system, env = load_recipe("system", name), load_recipe("system", name).value("agentic.env")
    commands, toy = (
        shown(capsys, name, *options).split(system.readme)[1].replace("\\\n", " ").splitlines()
        for options in ([], ["--toy"])
    )
    imports = [shlex.split(line)[3:] for line in commands if line.startswith("verl-agentic data import ")]
    sets = [(FORMATS[words[0]].env, words[words.index("--out") + 1], "test" in words) for words in imports]
    games = [line for line in commands if line.startswith("verl-agentic prepare household --option games=")]
    assert sets == [(env, f"data/{env}", False), (env, f"data/{env}", True)] or (env == "household" and games)
    assert toy[2:] == [system.noted("toy"), *(line for line in toy[2:] if "--config-name" in line)]
    assert system.noted("toy").startswith(f"verl-agentic prepare {env} ")
    overrides = system.noted("overrides")
    assert sum(overrides in line for line in commands if "--config-name" in line) == 3 and not (
        overrides and overrides in "\n".join(toy)
    )


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", recipe_names("system"))
def test_the_first_line_is_the_largest_deviation(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = shown(capsys, name).splitlines()[0]
    (row,) = re.findall(r"^\| where ours.*\n.*\n\| (.*) \|$", load_recipe("system", name).readme, re.MULTILINE)
    subject, theirs, ours = row.split(" | ")
    assert first == f"# largest deviation from the paper: {subject}: {theirs}; here: {ours}"


def test_toy_rows_and_tiny_models_are_larger_deviations(capsys: pytest.CaptureFixture[str]) -> None:
    assert "paper: the rows, which the environment search_qa makes\n" in shown(capsys, "search_r1", "--toy")
    assert "paper: the model, which is tiny" in shown(capsys, "search_r1", "--toy", "--scale", "cpu_tiny")
    for arguments in (["r1", "--toy"], ["--toy"], ["--method", "dapo", "--toy"]):
        assert main(["recipes", *arguments]) == 2
        assert "--toy is for systems with the data set of a paper" in capsys.readouterr().err


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", recipe_names("system"))
def test_the_config_of_a_readme_is_the_one_of_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, name)
    readme = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    config = config_in(text)
    assert readme.pop("defaults") == config["defaults"] and readme.pop("hydra") == config["hydra"]
    for section, values in readme.items():
        assert config[section].items() >= values.items()


def test_a_system_of_another_trainer_takes_no_method(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "swe_gym")
    assert config_in(text)["defaults"] == ["sft_trainer_engine", {"agentic/system": "swe_gym"}, "_self_"]
    assert "verl.trainer.sft_trainer --config-dir . --config-name my_run" in text and "preflight" not in text
    assert main(["recipes", "swe_gym", "--method", "dapo"]) == 2
    assert "sft_trainer_engine" in capsys.readouterr().err


def test_a_config_is_written_to_a_new_file_and_named_in_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "search.yaml"
    text = shown(capsys, "search_r1", "--toy", "--write", str(path))
    assert f"python -m verl.trainer.main_ppo --config-dir {path.parent} --config-name search" in text.splitlines()
    assert yaml.safe_load(path.read_text())["trainer"]["default_local_dir"] == "runs/search"
    assert main(["recipes", "search_r1", "--write", str(path)]) == 2
    assert "--write needs a new file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serch_r1"], "unknown name, got 'serch_r1'; did you mean search_r1"),
        (["--method", "grpo"], "unknown method, got 'grpo'; use one of "),
        (["search_r1", "--scale", "7b"], "unknown scale, got '7b'; use one of cpu_tiny"),
    ],
)
def test_errors_name_the_known_ones(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", *arguments]) == 2
    assert said in capsys.readouterr().err
