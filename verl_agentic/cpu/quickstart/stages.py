"""The kinds of stages of a course."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any, ClassVar

from verl_agentic.base.errors import DataError
from verl_agentic.base.settings import Settings, check_keys, read_settings, setting
from verl_agentic.cpu.quickstart.child_process import ENVIRONMENTS, run_child
from verl_agentic.cpu.quickstart.run_state import MODEL, RunState
from verl_agentic.data.export.export_run import ExportOptions, export_run
from verl_agentic.data.making.maker import load_maker
from verl_agentic.evaluate.policies.tree_search import TreeSettings
from verl_agentic.evaluate.warm_start import WarmStartRule
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.log.files.rows import read_rows

LOG, PAIRS, OUTCOMES, ROWS, AUTHORED = "log", "pairs", "outcomes", "sft", "rows"
"""What stages hand on besides models: logged episodes, and exported files."""
# The address: torchrun looks the host name up for one, and hangs where it does not resolve.
_TORCHRUN = ("torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc_per_node=1", "-m")


class CourseStage(Settings):
    """One stage of a course."""

    kind: ClassVar[str]
    """Its key in `stages`."""
    title: ClassVar[str]
    """What the progress display shows."""
    needs: ClassVar[str | None] = None
    """Product that a stage before it must give."""

    name: str = ""
    """Its folder, and its name in figures: by default the kind, with a number from the second stage of a kind on."""

    @classmethod
    def read(cls, values: Any, *, section: str) -> CourseStage:
        """Returns the stage of a section. Raises ConfigError for wrong keys."""
        return read_settings(cls, values, section=section)

    def products(self, folder: Path) -> dict[str, Path]:
        """Returns what it hands on, in its folder."""
        raise NotImplementedError

    def inputs(self, run: RunState) -> list[Any]:
        """Returns what its result depends on, besides its keys and the stages before."""
        return []

    def run(self, run: RunState) -> dict[str, Any]:
        """Does the work in its folder, and returns its record."""
        raise NotImplementedError


class ModelStage(CourseStage):
    """A stage that works with a model and tasks."""

    course: str = ""
    """Recipe whose course gives tasks, demonstrations and recipe files; by default this one."""
    start: str = ""
    """Name of the stage whose model it begins with; by default the newest model."""

    def inputs(self, run: RunState) -> list[Any]:
        return [str(run.model(self.start).relative_to(run.out))]


class TrainingStage(ModelStage):
    """A stage that runs a trainer."""

    module: ClassVar[tuple[str, ...]]
    """Module that trains, with the launcher before it."""
    metric: ClassVar[str]
    """What the progress display shows of each step."""
    steps_option: ClassVar[str] = "sft"
    """Option of the command line that sets its number of steps."""
    model_key: ClassVar[str] = "model.path"

    recipe: str = ""
    """File of the recipe's folder, without `.yaml`."""
    steps: int | None = setting(None, min=1)
    """Training steps; by default the recipe file's."""
    overrides: tuple[str, ...] = ()
    """Overrides of the recipe file, as on verl's command line."""

    def products(self, folder: Path) -> dict[str, Path]:
        return {MODEL: folder / "model"}

    def inputs(self, run: RunState) -> list[Any]:
        steps = run.steps.get(self.steps_option)
        return [steps, self.flags(run), *run.course.named(self.course).sources(self.recipe), *super().inputs(run)]

    def trainer(self) -> tuple[str, ...]:
        """Returns the module that trains."""
        return self.module

    def values(self, run: RunState) -> dict[str, Any]:
        """Returns the values of its trainer that depend on the run."""
        return {"data.train_files": self.rows(run), "trainer.seed": run.settings.seed}

    def rows(self, run: RunState) -> Path:
        """Returns the file that it is trained on."""
        return run.products[self.needs or ROWS]

    def flags(self, run: RunState) -> list[str]:
        """Returns further overrides that depend on the run."""
        return _device_groups(run, cpu="bfloat16_sft", cuda="one_gpu_sft")

    def run(self, run: RunState) -> dict[str, Any]:
        folder, config = run.folder(self.name), run.course.named(self.course).file(self.recipe)
        chosen = run.steps.get(self.steps_option) or self.steps
        steps = chosen or run.course.named(self.course).read(self.recipe)["trainer"]["total_training_steps"]
        values = {
            self.model_key: run.model(self.start),
            **self.values(run),
            "trainer.default_local_dir": folder,
            "trainer.total_training_steps": steps,
        }
        overrides = [*(f"{key}={value}" for key, value in values.items()), *self.flags(run), *self.overrides]
        logs = run.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        metrics = logs / f"{self.name}_{len(run.metric_files(self.name))}.jsonl"
        run_child(
            [
                *[sys.executable, "-m", *self.trainer()],
                *["--config-dir", str(config.parent), "--config-name", self.recipe],
                *overrides,
                "trainer.logger=[file]",
            ],
            log=logs / f"{self.name}.log",
            environment={**ENVIRONMENTS[run.settings.device], "VERL_FILE_LOGGER_PATH": str(metrics)},
            meter=run.meter,
            on_poll=lambda: run.display.follow(metrics, steps, self.metric),
        )
        shutil.rmtree(folder / "model", ignore_errors=True)
        shutil.copytree(self.find_model(folder), folder / "model")
        return {}

    def find_model(self, folder: Path) -> Path:
        """Returns the model that it hands on, among its checkpoints."""
        return _newest_huggingface(folder)


class StopSettings(WarmStartRule):
    """The key `stop` of an `sft` stage."""

    every: int = setting(min=1)
    """Steps between two checks."""


class SftStage(TrainingStage):
    """SFT on the newest exported rows, or else on the demonstrations."""

    kind = "sft"
    title = "verl's SFT trainer"
    module = (*_TORCHRUN, "verl.trainer.sft_trainer")
    metric = "train/loss"
    recipe: str = "sft"
    stop: StopSettings | None = None
    """Ends before the model overfits, and hands on the best checkpoint; by default the last one."""

    def trainer(self) -> tuple[str, ...]:
        if self.stop is None:
            return self.module
        return (*_TORCHRUN, "verl_agentic.verl.extensions.offline.warm_start_trainer")

    def rows(self, run: RunState) -> Path:
        return run.products.get(ROWS, run.data(self.course) / "sft.jsonl")

    def values(self, run: RunState) -> dict[str, Any]:
        return super().values(run) if self.stop is None else {**super().values(run), **self._stop_values(run)}

    def _stop_values(self, run: RunState) -> dict[str, Any]:
        """Returns the checks of its trainer, on training tasks of RL, which have no demonstrations."""
        assert self.stop is not None
        rule, course = asdict(self.stop), run.course.named(self.course)
        section = {
            **{name: value for name, value in rule.items() if name != "every"},
            "rows": str(run.data(self.course) / "train.jsonl"),
            "env": course.env,
            "env_config": course.env_config,
            "limits": asdict(course.limits),
            "protocol": course.protocol,
            "dtype": run.dtype,
        }
        return {"trainer.save_freq": self.stop.every, **_flatten("++warm_start", section)}

    def run(self, run: RunState) -> dict[str, Any]:
        result = super().run(run)
        record = run.folder(self.name) / "warm_start.json"
        return result if self.stop is None else {**result, **json.loads(record.read_text())}

    def find_model(self, folder: Path) -> Path:
        if self.stop is None:
            return super().find_model(folder)
        chosen = json.loads((folder / "warm_start.json").read_text())["chosen"]
        return folder / f"global_step_{chosen}" / "huggingface"


class DpoStage(TrainingStage):
    """DPO on the newest exported pairs."""

    kind = "dpo"
    title = "verl's SFT trainer on pairs"
    needs = PAIRS
    module = (*_TORCHRUN, "verl_agentic.verl.extensions.offline.dpo_trainer")
    metric = "train/margin"
    recipe: str = "dpo"


class PearStage(TrainingStage):
    """SFT on the newest exported rows with the log-probs of their author, weighted by PEAR."""

    kind = "pear"
    title = "verl's SFT trainer with PEAR weights"
    needs = AUTHORED
    module = (*_TORCHRUN, "verl_agentic.verl.extensions.offline.pear_trainer")
    metric = "train/pear_weight"
    recipe: str = "pear"


class OutcomeStage(TrainingStage):
    """An outcome reward model on the newest exported outcomes; later `rl` stages take its token rewards."""

    kind = "outcome"
    title = "verl's SFT trainer on outcomes"
    needs = OUTCOMES
    module = (*_TORCHRUN, "verl_agentic.verl.extensions.offline.outcome_trainer")
    metric = "train/accuracy"
    recipe: str = "outcome"

    def products(self, folder: Path) -> dict[str, Path]:
        return {self.kind: folder / "model"}


class RlStage(TrainingStage):
    """RL on the training tasks, with verl's `main_ppo`."""

    kind = "rl"
    title = "python -m verl.trainer.main_ppo"
    module = ("verl.trainer.main_ppo",)
    metric = "episode/acc"
    steps_option = "rl"
    model_key = "actor_rollout_ref.model.path"
    recipe: str = "grpo"

    def products(self, folder: Path) -> dict[str, Path]:
        return {MODEL: folder / "model", LOG: folder}

    def values(self, run: RunState) -> dict[str, Any]:
        data, seed = run.data(self.course), run.settings.seed
        outcome = run.products.get(OutcomeStage.kind)
        return {
            "data.train_files": data / "train.jsonl",
            "data.val_files": data / "test.jsonl",
            "data.seed": seed,
            "actor_rollout_ref.rollout.seed": seed,
            "++agentic.log.dir": run.folder(self.name) / "log",
            **({} if outcome is None else {"++agentic.implicit_reward.model_path": outcome}),
        }

    def run(self, run: RunState) -> dict[str, Any]:
        # A made recipe has another folder in each run, and the same name for every environment.
        recipe = f"{Path(run.course.recipe).name} of {run.course.env}"
        return {**super().run(run), "recipe": recipe, "control": run.settings.control}

    def flags(self, run: RunState) -> list[str]:
        control = ["algorithm.adv_estimator=grpo_shuffled"] if run.settings.control else []
        if run.settings.engine == "vllm":
            # On a GPU its kernels need bfloat16.
            return [*control, f"+agentic={'cpu' if run.settings.device == 'cpu' else 'one_gpu'}_vllm"]
        return [*control, *_device_groups(run, cpu="bfloat16", cuda="one_gpu")]


class SampleStage(ModelStage):
    """Episodes of the newest model on training tasks."""

    kind = "sample"
    title = "episodes of training tasks"

    tasks: int = setting(512, min=1)
    """Number of training tasks, the first ones."""
    samples: int = setting(8, min=1)
    """Episodes of each task."""
    temperature: float = setting(1.0, above=0)
    tree: TreeSettings | None = None
    """Lets the episodes of a task search a tree; by default they are independent."""

    def products(self, folder: Path) -> dict[str, Path]:
        return {LOG: folder}

    def run(self, run: RunState) -> dict[str, Any]:
        from verl_agentic.cpu.quickstart import tasks  # imports verl

        return tasks.sample(
            run.course.named(self.course),
            read_rows(run.data(self.course) / "train.jsonl")[: self.tasks],
            run.folder(self.name),
            run.model(self.start),
            samples=self.samples,
            temperature=self.temperature,
            seed=run.settings.seed,
            tree=self.tree,
            advance=run.display.advance,
            device=run.settings.device,
            dtype=run.dtype,
        )


class MakeStage(ModelStage):
    """Rows of a kind of `verl-agentic data make`, with the ids of the newest model in the protocol of the course."""

    kind = "make"
    title = "rows that pass a check"

    data: str = ""
    """Kind of data, whose rows are conversations."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the kind."""
    count: int = setting(256, min=1)
    """Number of candidates."""
    teacher: ChatModel | None = None
    """Model behind an endpoint, for kinds that need one: `url`, `model`, `api_key_env`, ..."""

    def check_together(self) -> None:
        load_maker(self.data, self.options)

    def products(self, folder: Path) -> dict[str, Path]:
        return {ROWS: folder / "rows.jsonl"}

    def run(self, run: RunState) -> dict[str, Any]:
        from verl_agentic.cpu.quickstart import tasks  # imports verl

        out = self.products(run.folder(self.name))[ROWS]
        report = tasks.make_conversations(
            run.course.named(self.course),
            out,
            run.model(self.start),
            maker=load_maker(self.data, self.options),
            count=self.count,
            teacher=self.teacher,
            seed=run.settings.seed,
            held_out=run.data(self.course) / "test.jsonl",
            advance=run.display.advance,
        )
        if not report.rows or report.unfinished:
            raise DataError(
                f"{out} lacks rows, got {report.dropped}, {report.unfinished} unfinished; repeat the command"
            )
        return {"rows": report.rows, "dropped": dict(report.dropped)}


class ExportStage(CourseStage, ExportOptions):
    """Training data from the newest `sample` or `rl` stage. Its keys are the options of `verl-agentic data export`."""

    kind = "export"
    title = "training data from episodes"
    needs = LOG
    shape: str = ""
    """The key `as`: shape of the records."""

    @classmethod
    def read(cls, values: Any, *, section: str) -> ExportStage:
        keys = {"as", *(item.name for item in fields(cls))} - {"shape"}
        options = check_keys(values, keys, section=section)
        shape = options.pop("as", "")
        return read_settings(cls, {**options, "shape": shape}, section=section)

    def check_together(self) -> None:
        self.check()

    def products(self, folder: Path) -> dict[str, Path]:
        read_as = {"cpt": ROWS, "steps": OUTCOMES}
        return {read_as.get(self.shape, self.shape): folder / "rows.parquet"}

    def run(self, run: RunState) -> dict[str, Any]:
        (path,) = self.products(run.folder(self.name)).values()
        return asdict(export_run(run.products[LOG], path, self))


STAGES: Mapping[str, type[CourseStage]] = {
    cls.kind: cls for cls in (SftStage, PearStage, DpoStage, OutcomeStage, RlStage, SampleStage, MakeStage, ExportStage)
}


def _flatten(name: str, value: Any) -> dict[str, str]:
    """Returns the overrides of a section, with values as Hydra reads them."""
    if not isinstance(value, Mapping):
        return {name: json.dumps(value)}
    return {key: text for inner, part in value.items() for key, text in _flatten(f"{name}.{inner}", part).items()}


def _device_groups(run: RunState, *, cpu: str, cuda: str) -> list[str]:
    """Returns the overrides that choose device and type: a recipe as it is computes in float32 on a CPU."""
    if run.settings.device == "cuda":
        return [f"+agentic={cuda}{'_float32' * (run.dtype == 'float32')}"]
    return [f"+agentic={cpu}"] * (run.dtype == "bfloat16")


def _newest_huggingface(folder: Path) -> Path:
    folders = [p.parent for p in folder.glob("**/huggingface/config.json") if list(p.parent.glob("*.safetensors"))]
    if not folders:
        raise DataError(f"no Hugging Face model in the checkpoints, got {folder}; see the logs beside it")
    return max(folders, key=lambda path: int(path.relative_to(folder).parts[0].rsplit("_", 1)[-1]))
