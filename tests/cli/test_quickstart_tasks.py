"""The quickstart's own work, small: rows, demonstrations through the real loop and tool, and an evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_agentic.base import paths
from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError, EnvError, SandboxUnavailableError
from verl_agentic.base.types import Message
from verl_agentic.cpu.quickstart import tasks
from verl_agentic.cpu.quickstart.course import Course, load_course
from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.data.export.export_run import ExportOptions, export_run
from verl_agentic.data.making.maker import load_maker
from verl_agentic.evaluate.evaluation_log import read_episodes
from verl_agentic.evaluate.policies.tree_search import TreeSettings
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.log.files.rows import read_rows
from verl_agentic.sandbox.pools import backends, process_pool
from verl_agentic.verl.rollout.model_codec import load_codec

COURSE = replace(load_course("quickstart"), num_train=6, num_demos=24)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("quickstart")
    assert tasks.make_model([COURSE], out / "model", seed=1)["parameters"] > 300_000
    seen: list[tuple[int, int]] = []
    result = tasks.make_data(COURSE, out / "data", out / "model", 1, 4, lambda done, total: seen.append((done, total)))
    assert seen == [(i, 24) for i in range(1, 25)]
    assert result["num_demos"] == 24 and 0 < result["success_demos"] < 1
    return out


def test_a_course_of_a_pretrained_model_begins_with_a_copy_of_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(tasks, "model_folder", lambda name, dtype: fetched.append(name) or made / "model")
    course = replace(COURSE, model="smollm2")
    assert tasks.make_model([course], tmp_path / "model", seed=1) == {"model": "smollm2"} and fetched == ["smollm2"]
    for path in (made / "model").iterdir():
        assert (tmp_path / "model" / path.name).read_bytes() == path.read_bytes()
    assert course.inputs() != COURSE.inputs(), "another model: the phase is repeated"


def operands(rows: list) -> set[str]:
    return {number for row in rows for number in row.prompt[0].content.removeprefix("What is ").rstrip("?").split("*")}


def test_training_and_held_out_rows_share_no_operand(made: Path) -> None:
    train, test = (read_rows(made / "data" / f"{split}.jsonl") for split in ("train", "test"))
    assert (len(train), len(test)) == (6, 4)
    assert not operands(train) & operands(test)
    assert all(str(eval(r.prompt[0].content.removeprefix("What is ").rstrip("?"))) == r.ground_truth for r in train)


@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize(
    ("recipe", "seed"), [("quickstart", 0), ("quickstart", 7), ("math_rubric", 0), ("search_qa", 0), ("text_game", 0)]
)
def test_sft_rl_and_held_out_rows_share_no_task(recipe: str, seed: int) -> None:
    course = load_course(recipe)
    rows = tasks.make_rows(course, seed=seed, num_eval=256)
    assert [len(rows[name]) for name in ("train", "test", "demos")] == [course.num_train, 256, course.num_demos]
    train, test, demos = ({content(row) for row in rows[name]} for name in ("train", "test", "demos"))
    assert not train & test and not train & demos and not test & demos
    if recipe == "quickstart":
        assert len(demos) > 5900, "few tasks are demonstrated twice"


def content(row: EnvRow) -> str:
    extra = {key: value for key, value in row.extra.items() if key not in ("task_id", "index", "split")}
    return repr(([message.content for message in row.prompt], row.ground_truth, sorted(extra.items())))


def test_a_course_whose_rl_takes_all_tasks_is_refused() -> None:
    row = EnvRow(prompt=(Message("user", "1+1?"),), ground_truth="2", data_source="sums", extra={"task_id": "a"})
    package = replace(COURSE.package, make_rows=lambda *, split, count, seed: [row] if split == "train" else [])

    class Small(Course):
        package = property(lambda self: package)  # type: ignore[assignment]

    with pytest.raises(DataError, match="1 rows"):
        tasks.make_rows(Small(recipe="quickstart", env="python_math", num_train=1, num_demos=1), seed=0, num_eval=0)


def test_where_no_sandbox_isolates_the_quickstart_says_so_at_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(options: object) -> None:
        raise SandboxUnavailableError("not on this machine")

    isolating = [name for name in backends.AUTO_ORDER if name != "local"]
    monkeypatch.setattr(backends, "_MAKERS", {**backends._MAKERS, **dict.fromkeys(isolating, refuse)})
    monkeypatch.setattr(process_pool, "_pools", {})
    with pytest.raises(EnvError, match="cannot be generated here") as caught:
        tasks.make_data(COURSE, tmp_path, made / "model", 1, 4, lambda done, total: None)
    assert "namespaces" in str(caught.value) and "sandbox backends" in str(caught.value)


def test_demonstrations_show_every_move_and_train_only_what_the_demonstrator_wrote(made: Path) -> None:
    from verl_agentic.verl.rollout.model_codec import load_codec

    tokenizer, _ = load_codec(str(made / "model"))
    trained, context = [], []
    for _, row in read_json_lines(made / "data" / "sft.jsonl"):
        pairs = list(zip(row["input_ids"], row["loss_mask"], strict=True))
        trained.append(tokenizer.decode([i for i, m in pairs if m]))
        context.append(tokenizer.decode([i for i, m in pairs if not m]))
        assert row["loss_mask"][-1] == 1
    assert all(text.endswith("}<|im_end|>") and r"\boxed{" in text for text in trained)
    assert not any("<tool_response>" in text or "<|im_start|>" in text for text in trained)
    with_tool = [c for t, c in zip(trained, context, strict=True) if "<tool_call>" in t]
    assert 0 < len(with_tool) < len(trained)
    assert all("<tool_response>" in text for text in with_tool)


def test_an_evaluation_counts_all_held_out_tasks_in_both_modes_and_keeps_the_episodes(made: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = tasks.evaluate(
        COURSE,
        made,
        "base",
        made / "model",
        greedy=True,
        seed=1,
        advance=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(i, 8) for i in range(1, 9)]
    assert result["num_tasks"] == 4
    for mode in ("sampled", "greedy"):
        rows = [row for (row,) in read_episodes(made / "eval" / f"base_{mode}").values()]
        held_out = read_rows(made / "data" / "test.jsonl")
        assert [row["prompt"][-1]["content"] for row in rows] == [row.prompt[-1].content for row in held_out]
        assert {row["temperature"] for row in rows} == {1.0 if mode == "sampled" else 0.0}
        assert result[mode] == sum(row["acc"] for row in rows) / 4
        assert result[f"tool_rate_{mode}"] == sum(row["numbers"]["used_tool"] for row in rows) / 4
        assert result[f"void_{mode}"] == 0
    assert result["sampled"] == result["greedy"] == 0.0, "random weights cannot multiply"


@pytest.mark.slow
def test_an_evaluation_that_needs_no_greedy_figures_plays_every_task_once(made: Path) -> None:
    seen: list[int] = []
    result = tasks.evaluate(
        COURSE, made, "once", made / "model", greedy=False, seed=1, advance=lambda done, total: seen.append(total)
    )
    assert seen == [4] * 4 and "greedy" not in result
    few = tasks.evaluate(
        COURSE, made, "few", made / "model", greedy=False, seed=1, max_tasks=3, advance=lambda done, total: None
    )
    assert few["num_tasks"] == 3


@pytest.mark.slow
def test_samples_are_stored_with_their_ids_and_finished_ones_are_kept(made: Path, tmp_path: Path) -> None:
    rows = read_rows(made / "data" / "train.jsonl")[:3]
    seen: list[tuple[int, int]] = []

    def sample(temperature: float = 1.0) -> dict:
        return tasks.sample(
            COURSE,
            rows,
            tmp_path,
            made / "model",
            samples=2,
            temperature=temperature,
            seed=1,
            advance=lambda done, total: seen.append((done, total)),
        )

    assert (sample()["episodes"], sample()["tasks"]) == (6, 3) and seen == [(i, 6) for i in range(1, 7)] * 2
    records = [row for (row,) in read_episodes(tmp_path).values()]
    assert len(records) == 6, "the second call played none"
    lengths = {tuple(record["response_ids"]) for record in records}
    assert len(lengths) == 6, "every attempt has its own seed"
    exported = export_run(tmp_path, tmp_path / "rows.jsonl", ExportOptions(shape="outcomes"))
    assert (exported.records, exported.left_out) == (6, {})
    with pytest.raises(ConfigError, match="holds another evaluation"):
        sample(temperature=0.5)


@pytest.mark.slow
def test_samples_may_search_a_tree(made: Path, tmp_path: Path) -> None:
    rows = read_rows(made / "data" / "train.jsonl")[:2]
    settings = TreeSettings(width=3)
    tasks.sample(
        COURSE,
        rows,
        tmp_path,
        made / "model",
        samples=4,
        temperature=1.0,
        seed=1,
        tree=settings,
        advance=lambda *_: None,
    )
    records = [row for (row,) in read_episodes(tmp_path).values()]
    turns = {(record["uid"], tuple(record["response_ids"][: record["segments"][0]["end"]])) for record in records}
    assert len(records) == 8 and len(turns) == 6, "three turns of each task, of which one is taken twice"


@pytest.mark.slow
def test_made_conversations_have_the_ids_of_the_model(made: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = tasks.make_conversations(
        COURSE,
        tmp_path / "rows.jsonl",
        made / "model",
        maker=load_maker("agent_flan", {}),
        count=5,
        teacher=None,
        seed=1,
        held_out=made / "data" / "test.jsonl",
        advance=lambda done, total: seen.append((done, total)),
    )
    made_rows = [row for _, row in read_json_lines(tmp_path / "rows.jsonl")]
    assert report.rows == len(made_rows) > 0 and seen == [(number, 5) for number in range(1, 6)]
    assert all(0 < sum(row["loss_mask"]) < len(row["input_ids"]) == len(row["loss_mask"]) for row in made_rows)


def test_playing_uses_the_limits_of_the_recipe() -> None:
    recipe = COURSE.read("grpo")
    limits = COURSE.limits
    assert limits.max_response_tokens == recipe["data"]["max_response_length"]
    assert limits.max_context_tokens == recipe["data"]["max_prompt_length"] + recipe["data"]["max_response_length"]
    assert limits.max_turns == recipe["agentic"]["limits"]["max_turns"]


def test_a_course_with_unknown_keys_or_without_its_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "recipes_dir", lambda: tmp_path)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/course.yaml").write_text("{env: python_math, num_train: 1, num_demos: 1, lessons: 3}")
    with pytest.raises(ConfigError, match="'lessons'"):
        load_course("odd")
    (tmp_path / "bare/env").mkdir(parents=True)
    (tmp_path / "bare/env/__init__.py").write_text("def make_env(row): ...")
    for name in ("sft", "grpo"):
        (tmp_path / f"bare/{name}.yaml").touch()
    (tmp_path / "bare/course.yaml").write_text(f"{{env: {tmp_path / 'bare/env'}, num_train: 1, num_demos: 1}}")
    with pytest.raises(ConfigError, match="make_rows"):
        load_course("bare").package  # noqa: B018


@pytest.mark.slow
def test_a_tokenizer_of_the_course_writes_its_conversations_with_fewer_tokens(tmp_path: Path) -> None:
    text = COURSE.package.make_rows(split="train", count=1, seed=5)[0].prompt[0].content  # type: ignore[misc]
    course = replace(COURSE, own_tokenizer=True)
    tasks.make_model([course], tmp_path / "model", seed=0)
    tasks.make_model([replace(course, token_share=1.5)], tmp_path / "rare" / "model", seed=0)
    make_tiny_tokenizer(tmp_path / "none")
    lengths = [len(load_codec(str(tmp_path / name))[0].encode(text)) for name in ("model", "rare/model", "none")]
    assert lengths[0] < lengths[1], "fewer words are seen three times in two conversations"
