"""The phases that run in this process: model, data, samples, evaluation."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError, EnvError
from verl_agentic.cpu.model_fetch.fetch import model_folder
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.cpu.quickstart.gold_demos import demonstrator_of
from verl_agentic.cpu.tiny_model import make_tiny_model, make_tiny_tokenizer
from verl_agentic.data.datasets.conversation_rows import with_ids
from verl_agentic.data.datasets.sft import write_sft
from verl_agentic.data.making import make_data as making
from verl_agentic.data.making.maker import Maker
from verl_agentic.data.row_checks import task_of
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import run_episodes, scripted
from verl_agentic.episode.records.episode import Episode
from verl_agentic.evaluate.evaluation_log import EvaluationLog, make_log_rows
from verl_agentic.evaluate.evaluation_run import attempts, summarise
from verl_agentic.evaluate.journal import keep_settings
from verl_agentic.evaluate.local_model import LocalModel
from verl_agentic.evaluate.policies.tree_search import TreeSettings
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.log.files.rows import read_rows, write_rows
from verl_agentic.log.reader import write_run
from verl_agentic.log.run_files import EVALUATION, write_tokenizer
from verl_agentic.verl.rollout.model_codec import load_codec

_MAX_VOID_SHARE = 0.05  # maximum share of void demonstrations
_NUM_TEXTS = 300  # number of demonstrations to train a tokenizer on

Advance = Callable[[int, int], None]
"""Called with the number of finished and of all items."""


def make_model(courses: Iterable[Course], folder: Path, seed: int) -> dict[str, Any]:
    """Copies the pretrained model of the first course, or makes its random one, with a tokenizer for all of them."""
    first, *others = courses
    if first.model:
        shutil.copytree(model_folder(first.model, dtype="bfloat16"), folder, dirs_exist_ok=True)
        return {"model": first.model}
    texts = [text for course in (first, *others) for text in _make_texts(course)] if first.own_tokenizer else None
    parameters = make_tiny_model(folder, preset=first.preset, seed=seed, texts=texts, token_share=first.token_share)
    return {"parameters": parameters}


def make_data(course: Course, folder: Path, model: Path, seed: int, num_eval: int, advance: Advance) -> dict[str, Any]:
    """Writes training and held-out rows, and demonstrations from the episode loop."""
    rows = make_rows(course, seed=seed, num_eval=num_eval)
    for split in ("train", "test"):
        write_rows(rows[split], folder / f"{split}.jsonl")
    episodes = run_demonstrations(
        course, rows["demos"], model=model, seed=seed, on_episode=_make_counter(advance, course.num_demos)
    )
    return {
        "num_demos": write_sft(episodes, folder / "sft.jsonl"),
        "success_demos": sum(e.reward.outcome for e in episodes) / len(episodes),
    }


def make_rows(course: Course, *, seed: int, num_eval: int) -> dict[str, list[EnvRow]]:
    """Returns the rows of `train` (RL), `test` (held out) and `demos` (SFT), which share no task.

    Raises:
        DataError: no tasks are left for demonstrations.
    """
    train, test = _make_rows(course, "train", course.num_train, seed), _make_rows(course, "test", num_eval, seed)
    demos = _make_rows(course, "train", course.num_demos, seed + 1)
    return {"train": train, "test": test, "demos": _drop_tasks(demos, [*train, *test])}


def evaluate(
    course: Course,
    out: Path,
    name: str,
    model: Path,
    *,
    greedy: bool,
    seed: int,
    advance: Advance,
    max_tasks: int | None = None,
    **engine: str,
) -> dict[str, Any]:
    """Evaluates the held-out tasks at temperature 1, and optionally greedily; keeps the episodes for the report.

    `max_tasks`: evaluates the first ones only.
    """
    rows = read_rows(out / "data" / "test.jsonl")[:max_tasks]
    local = local_model(course, model, **engine)
    modes = {"sampled": 1.0, "greedy": 0.0} if greedy else {"sampled": 1.0}
    result: dict[str, Any] = {"num_tasks": len(rows)}
    on_episode = _make_counter(advance, len(rows) * len(modes))
    for mode, temperature in modes.items():
        episodes = local.run(rows, temperature=temperature, seed=seed, on_episode=on_episode)
        result[mode] = sum(e.reward.outcome for e in episodes) / len(episodes)
        result[f"tool_rate_{mode}"] = sum(e.numbers()["used_tool"] for e in episodes) / len(episodes)
        result[f"void_{mode}"] = sum(e.is_void for e in episodes)
        columns = {"env": course.env, "temperature": temperature, "session": 0, "id_source": "exact"}
        records = [
            record
            for index, (episode, row) in enumerate(zip(episodes, rows, strict=True))
            for record in make_log_rows(
                episode, row, columns={**columns, "uid": f"task-{index:05d}"}, tokenizer=local.tokenizer
            )
        ]
        folder = write_run(out / "eval" / f"{name}_{mode}", trajectories=records)
        keep_settings(folder / EVALUATION, {"env": course.env, "temperature": temperature}, has_begun=False)
    return result


def sample(
    course: Course,
    rows: Sequence[EnvRow],
    folder: Path,
    model: Path,
    *,
    samples: int,
    temperature: float,
    seed: int,
    tree: TreeSettings | None = None,
    advance: Advance,
    **engine: str,
) -> dict[str, Any]:
    """Runs several episodes of each task, and stores them as `verl-agentic evaluate` does; finished ones are kept."""
    settings = {
        "env": course.env,
        "temperature": temperature,
        "tokenizer": str(model),
        **({} if tree is None else {"tree": asdict(tree)}),
    }
    plan = attempts(rows, samples)
    log, local = EvaluationLog(folder, settings), local_model(course, model, **engine)
    write_tokenizer(folder, local.tokenizer)  # for the viewer
    try:
        episodes = local.sample(
            plan, log=log, temperature=temperature, seed=seed, tree=tree, on_episode=_make_counter(advance, len(plan))
        )
    finally:
        log.close()
    return summarise([rows[-1] for rows in episodes])


def make_conversations(
    course: Course,
    out: Path,
    model: Path,
    *,
    maker: Maker,
    count: int,
    teacher: ChatModel | None,
    seed: int,
    held_out: Path,
    advance: Advance,
) -> making.MakingReport:
    """Writes conversations of a maker as rows for SFT, in the protocol of the course; see `data.making`."""
    tokenizer, codec = load_codec(str(model), protocol=course.protocol)
    work = making.make_data(
        maker,
        out,
        seed=seed,
        n=count,
        settings={"maker": repr(maker), "seed": seed, "teacher": teacher and teacher.model, "model": str(model)},
        model=teacher,
        against=[held_out],
        encode=functools.partial(with_ids, codec=codec, tokenizer=tokenizer, shape="sft"),
        on_candidate=_make_counter(advance, count),
    )
    return asyncio.run(work)


def local_model(course: Course, model: Path, **engine: str) -> LocalModel:
    """Returns a model on the course's environment, with the limits of the recipe; `engine`: its device and dtype."""
    tokenizer, codec = load_codec(str(model), protocol=course.protocol)
    make_env = functools.partial(course.package.make_env, **course.env_config)
    return LocalModel(
        model_path=model, tokenizer=tokenizer, codec=codec, make_env=make_env, limits=course.limits, **engine
    )


def _make_counter(advance: Advance, total: int) -> Callable[[Any], None]:
    """Returns a function that is called after each episode."""
    count = itertools.count(1)
    return lambda _: advance(next(count), total)


def _make_rows(course: Course, split: str, count: int, seed: int) -> list[EnvRow]:
    make_rows = course.package.make_rows
    assert make_rows is not None
    return make_rows(split=split, count=count, seed=seed, **course.options)


def _drop_tasks(rows: Sequence[EnvRow], others: Sequence[EnvRow]) -> list[EnvRow]:
    """Returns as many rows without the tasks of `others`: remaining rows are repeated.

    Raises:
        DataError: `others` have all tasks.
    """
    other_tasks = {task_of(row) for row in others}
    remaining_rows = [row for row in rows if task_of(row) not in other_tasks]
    if not remaining_rows:
        raise DataError(
            f"demonstrations need tasks that are neither trained with RL nor held out, got {len(rows)} rows without "
            "one; lower num_train in course.yaml, or have make_rows make more tasks"
        )
    return list(itertools.islice(itertools.cycle(remaining_rows), len(rows)))


def run_demonstrations(
    course: Course,
    rows: Sequence[EnvRow],
    *,
    model: Path,
    seed: int,
    limits: EpisodeLimits | None = None,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> list[Episode]:
    """Returns the demonstrations of rows, with the limits of the course by default.

    Raises:
        EnvError: too many of them are void.
    """
    package, limits = course.package, limits or course.limits
    tokenizer, codec = load_codec(str(model), protocol=course.protocol)
    demonstrator = package.demonstrator
    if demonstrator is None:
        assert package.gold is not None
        demonstrator = demonstrator_of(package.gold, rows)

    def setup_for(index: int, row: EnvRow) -> EpisodeSetup:
        script = demonstrator(row, rng=random.Random(f"{seed}/{index}"), **course.demos)
        return scripted(script, codec=codec, tokenizer=tokenizer, limits=limits)

    make_env = functools.partial(package.make_env, **course.env_config)
    episodes = asyncio.run(run_episodes(rows, make_env=make_env, setup_for=setup_for, on_episode=on_episode))
    errors = [episode.error for episode in episodes if episode.is_void]
    if len(errors) > _MAX_VOID_SHARE * len(episodes):
        raise EnvError(
            f"demonstrations of {course.env} cannot be generated here, got {len(errors)} void ones of {len(episodes)}, "
            f"the first by {errors[0]}; try `verl-agentic sandbox backends`, and `env validate {course.env}`"
        )
    return episodes


def _make_texts(course: Course) -> list[str]:
    """Returns the texts of demonstrations, to train a tokenizer on."""
    rows = _make_rows(course, "train", _NUM_TEXTS, 0)
    with tempfile.TemporaryDirectory() as folder:
        make_tiny_tokenizer(Path(folder))
        tokenizer, _ = load_codec(folder)
        episodes = run_demonstrations(course, rows, model=Path(folder), seed=0)
        return [tokenizer.decode(row.token_ids) for episode in episodes for row in episode.trajectories]
