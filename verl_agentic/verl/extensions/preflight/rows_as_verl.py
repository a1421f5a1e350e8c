"""The data and the other files of a run, as verl would open them."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl_agentic.base.errors import AgenticError, DataError, boundary
from verl_agentic.checks.preflight.planned_run import MISSING, Rows, SharedRows
from verl_agentic.data.file_checks import foreign_truth, null_arguments
from verl_agentic.data.overlap.find_overlaps import KINDS, find_overlaps
from verl_agentic.data.truth_checks import truth_problems
from verl_agentic.episode.attempt.episode_setup import PARTIAL_SOLUTION
from verl_agentic.log.files.as_verl import changed_values, load_as_verl
from verl_agentic.log.files.parquet import extra_of
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.rewards.rubric import Rubric

_HEAD = 8
"""Rows that verl's data set class is given to make the first ones of."""
_MAX_FAULTS = 5
_COMPARE_S = 20.0
"""Time in which training rows are compared with validation rows; the rest is taken on trust."""
_PATHS = (
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "actor_rollout_ref.rollout.router_config_path",
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "data.custom_cls.path",
    "trainer.v1.sampler.custom_sampler.path",
)


def missing_files(config: DictConfig) -> list[str]:
    """Returns which files and folders of a configuration are not there; remote ones are taken on trust."""
    return [*_missing_data(config), *_missing_others(config)]


def data_files(config: DictConfig, split: str) -> list[str]:
    """Returns the files of `train` or `val`; none where they are not set."""
    node = OmegaConf.select(config.data, f"{split}_files", throw_on_missing=False)
    files = [node] if isinstance(node, str) else list(node or ())
    return [file for file in files if file != MISSING]


def read_rows(files: Sequence[str]) -> Rows:
    """Returns how many rows there are, and who plays them. Raises DataError if a file cannot be read."""
    count, names, has_names = 0, Counter[str | None](), False
    for file in files:
        path = Path(file).expanduser()
        with boundary(DataError, f"reading {file}"):
            rows, agent_names = _parquet_names(path) if path.suffix == ".parquet" else _json_names(path)
        count, has_names = count + rows, has_names or agent_names is not None
        names.update(agent_names if agent_names is not None else {None: rows})
    return Rows(count=count, agent_names=dict(names) if has_names else {})


def truth_faults(config: DictConfig, files: Sequence[str]) -> list[str]:
    """Returns the rows whose ground truth the outcomes of the rubric cannot read; the first ones and a count."""
    if OmegaConf.select(config, "reward.reward_manager.name") != "rubric":
        return []
    try:
        rubric = Rubric.from_config(OmegaConf.to_container(config.reward, resolve=True))
    except AgenticError:
        return []  # reported by the check `sections`
    components = [term.component.type for term in rubric.outcomes if not term.data_sources]
    return _first_faults([fault for file in files for fault in truth_problems(Path(file).expanduser(), components)])


def row_faults(files: Sequence[str]) -> list[str]:
    """Returns values that verl's dataset reads otherwise, ground truths that JSON has not, and nulls that Arrow filled
    into calls of prompts."""
    faults = []
    for path in (Path(file).expanduser() for file in files):
        faults += changed_values(path)
        for number, record in numbered_records(path):
            faults += [f"{path}:{number}: {fault}"] if (fault := foreign_truth(record)) else []
        faults += null_arguments(f"{path}: ", (record for _, record in numbered_records(path)))
    return _first_faults(faults)


def _first_faults(faults: list[str]) -> list[str]:
    more = [f"... and {len(faults) - _MAX_FAULTS} more rows"] if len(faults) > _MAX_FAULTS else []
    return faults[:_MAX_FAULTS] + more


def shared_rows(train: Sequence[str], val: Sequence[str]) -> SharedRows | None:
    """Returns how many training rows are validation rows, too; None if the rows have no prompts to compare."""
    old, new = ([Path(file).expanduser() for file in files] for files in (val, train))
    try:
        overlaps = find_overlaps(new, old, budget_s=_COMPARE_S)
    except DataError:
        return None
    exact, near = (overlaps.leaked[overlaps.kinds[overlaps.leaked] == KINDS.index(kind)] for kind in ("exact", "near"))
    example = ""
    for row in [*exact[:1], *near[:1]][:1]:
        (file, number), (other, other_number) = overlaps.place(row), overlaps.place(int(overlaps.others[row]))
        example = f"{overlaps.files[file]}:{number} and {overlaps.files[other]}:{other_number}"
    compared = max(0, overlaps.starts[-1] - overlaps.num_against)
    return SharedRows(exact=len(exact), near=len(near), compared=compared, example=example)


def first_rows(config: DictConfig, files: Sequence[str], *, tokenizer: Any, processor: Any) -> list[dict[str, Any]]:
    """Returns the first rows as verl's data set hands them out. Raises DataError if it does not take them."""
    from verl.trainer.ppo.utils import create_rl_dataset

    data = OmegaConf.create(OmegaConf.to_container(config.data, resolve=True))
    with open_dict(data):
        data.filter_overlong_prompts = False  # a prompt that is too long is what is looked for
    folder = Path(tempfile.mkdtemp(prefix="preflight_"))
    try:
        with boundary(DataError, "verl's data set"), _cached_in(folder):
            head = _write_head(Path(files[0]).expanduser(), folder)
            dataset = create_rl_dataset([str(head)], data, tokenizer, processor, is_train=True, max_samples=-1)
            return [dict(dataset[index]) for index in range(min(_HEAD, len(dataset)))]  # pyright: ignore
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _cached_in:
    """Lets the package datasets keep what it converts in a folder that is thrown away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        from datasets import config, disable_progress_bars

        self._before = config.HF_DATASETS_CACHE
        config.HF_DATASETS_CACHE = self._folder / "cache"
        disable_progress_bars()

    def __exit__(self, *_: object) -> None:
        from datasets import config

        config.HF_DATASETS_CACHE = self._before


def _missing_data(config: DictConfig) -> Iterator[str]:
    for split in ("train", "val"):
        for file in data_files(config, split):
            if not is_remote(file) and not Path(file).expanduser().is_file():
                yield f"data.{split}_files: there is no file {file}"


def _missing_others(config: DictConfig) -> Iterator[str]:
    paths = [(key, OmegaConf.select(config, key, throw_on_missing=False)) for key in _PATHS]
    rubric = OmegaConf.select(config, "reward.rubric")
    paths.append(("reward.rubric", rubric if isinstance(rubric, str) else None))
    for key, path in paths:
        if not path or path == MISSING or is_remote(str(path)):
            continue
        if not any(place.exists() for place in _list_places(str(path).removeprefix("file://"))):
            yield f"{key}: there is no {path}"


def _list_places(path: str) -> list[Path]:
    """Returns where verl looks for a file that is named by a relative path."""
    import verl

    package = Path(verl.__path__[0])
    return [base / Path(path).expanduser() for base in (Path(), package.parent, package)]


def is_remote(path: str) -> bool:
    """Returns whether a path names a place that is not on this machine, or a module."""
    return "://" in path and not path.startswith("file://")


def remote_files(config: DictConfig) -> list[str]:
    """Returns the data and other files of a configuration that are not on this machine, and cannot be looked at."""
    named = [file for split in ("train", "val") for file in data_files(config, split)]
    keys = (*_PATHS, "trainer.default_local_dir", "trainer.default_hdfs_dir", "actor_rollout_ref.model.path")
    named += [str(OmegaConf.select(config, key, throw_on_missing=False)) for key in keys]
    return [path for path in named if is_remote(path) and not path.startswith("pkg://")]


def count_partial_solutions(files: Sequence[str]) -> int:
    """Returns the number of rows with a partial solution. Raises DataError if a file cannot be read."""
    records = (record for file in files for _, record in numbered_records(Path(file).expanduser()))
    return sum(bool(extra_of(record.get("extra_info")).get(PARTIAL_SOLUTION)) for record in records)


def _parquet_names(path: Path) -> tuple[int, Mapping[str | None, int] | None]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    if "agent_name" not in file.schema_arrow.names:
        return file.metadata.num_rows, None
    return file.metadata.num_rows, Counter(pq.read_table(path, columns=["agent_name"])["agent_name"].to_pylist())


def _json_names(path: Path) -> tuple[int, Mapping[str | None, int] | None]:
    records = [record for _, record in numbered_records(path)]
    if not any("agent_name" in record for record in records):
        return len(records), None
    return len(records), Counter(record.get("agent_name") for record in records)


def _write_head(path: Path, folder: Path) -> Path:
    """Returns a file of the first rows; the file itself where it is of a kind that only its data set class knows."""
    if path.suffix not in (".parquet", ".json", ".jsonl"):
        return path
    head = folder / "head.parquet"
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        batch = next(pq.ParquetFile(path).iter_batches(batch_size=_HEAD), None)
        if batch is None:
            raise DataError(f"{path} has no rows; make some")
        pq.write_table(pa.Table.from_batches([batch]), head)
    else:  # the types of the columns depend on all rows
        rows = load_as_verl(path, folder / "cache")
        rows.select(range(min(_HEAD, len(rows)))).to_parquet(head)
    return head
