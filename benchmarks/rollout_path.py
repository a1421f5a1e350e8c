"""Measures the way of rollouts beside the engine: verl's `tool_agent` and `env_agent` on the same scripted turns.

python benchmarks/rollout_path.py [--device cuda] [--layers 30] [--against CHECKOUT] [--tokenizer FOLDER]

16 groups of 8 episodes, through verl's manager, workers, load balancer, reward worker, TransferQueue and replay
buffer. Each episode calls a tool once and answers. Both loops alternate in one run, with actors as threads and as
Ray's processes. `env_agent` runs as shipped, with trajectory log and audit. Nothing of `tool_agent`'s rows is logged.

`scripted`: the server answers at once. `engine`: the server samples as many tokens with its model, and answers with
the scripted ones.

`gen_vs_tool_agent.*`: wall time of a batch, as verl measures `timing_s/gen`. `start_*`: until the last episode has
sent its first request. `turns_*`: from then until the last turn is sampled. `end_*`: until the trainer has the batch.
`cpu_*`: CPU time of all processes. `gen_vs_other.*`: `env_agent` of this checkout over that of `--against`.

The table on standard error has the CPU time of a turn by what it was used for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from _narrow_model import make_narrow_model
from _report import Target, median, progress, report

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT
from verl_agentic.log.files.rows import write_rows
from verl_agentic.tools.python import SCHEMA

_HERE = Path(__file__).parent
_LOOPS = ("tool_agent", "env_agent")
_PHASES = ("gen", "start", "turns", "end", "cpu")
_GROUP_SIZE, _TURNS = 8, 2
_OBSERVATION = "line one of the output: 1, 2, 3 and so on\n" * 4
_ENV = """
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import ToolResult
from verl_agentic.base.types import Reward


class Tool:
    name, schema = "python", {schema}

    async def call(self, arguments):
        return ToolResult({observation})


class Env(ToolEnv):
    async def score(self, transcript):
        return Reward(float(transcript.final_answer.endswith(self.row.ground_truth)))


def make_env(row):
    return Env(row, [Tool()])
"""
_TOOL = """
from verl.tools.function_tool import function_tool


@function_tool("python", schema={schema})
async def python(code):
    return {observation}
"""


def main() -> int:
    """Runs the rollouts and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of the engine (%(default)s)")
    parser.add_argument("--layers", type=int, default=30, help="of the engine's model (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="batches of each loop (%(default)s)")
    parser.add_argument("--against", type=Path, help="another checkout (git worktree) to measure beside this one")
    parser.add_argument("--tokenizer", type=Path, help="folder of a real tokenizer; then there is no engine")
    parser.add_argument("--only", nargs="*", default=[], help="of the cases, such as scripted.threads")
    parser.add_argument("--stacks", type=Path, help="file for the profile's stacks, in the folded form of flame graphs")
    parser.add_argument("--quick", action="store_true", help="two groups, two layers, threads only")
    options = parser.parse_args()
    bench = Bench(options)
    with tempfile.TemporaryDirectory(prefix="rollout_path_") as name:
        bench.prepare(Path(name))
        for case in bench.cases():
            bench.measure(case, Path(name))
    return report(
        "rollout_path",
        ratios=bench.ratios,
        figures=bench.figures,
        targets={key: Target(bound=1.0, at_least=False) for key in bench.ratios if key.startswith("gen_vs_tool")},
    )


class Bench:
    """The cases and what they gave."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Takes the options of the command."""
        self._options = options
        self._num_prompts = 2 if options.quick else 16
        self._repeats = 1 if options.quick else options.repeats
        self.ratios: dict[str, float] = {}
        self.figures: dict[str, Any] = {"episodes": self._num_prompts * _GROUP_SIZE, "turns": _TURNS}

    def cases(self) -> list[str]:
        """Returns engine and address of each case; a GPU needs Ray's processes."""
        addresses = ["threads", "local"] if self._options.device == "cpu" else ["local"]
        engines = ["scripted"] if self._options.tokenizer else ["scripted", "engine"]
        names = [f"{engine}.{address}" for address in addresses for engine in engines]
        if self._options.quick:
            names = ["scripted.threads"]
        return [name for name in names if not self._options.only or name in self._options.only]

    def prepare(self, folder: Path) -> None:
        """Writes model, rows, environment and tool."""
        make_narrow_model(folder / "model", num_layers=2 if self._options.quick else self._options.layers)
        if self._options.tokenizer:
            (folder / "model" / "chat_template.jinja").unlink(missing_ok=True)
            shutil.copytree(self._options.tokenizer, folder / "model", dirs_exist_ok=True)
        question = "What is the sum of the numbers in the file? Use the tool, then answer. " * 2
        system = Message("system", "You can run Python code. Answer as in '#### 7'.")
        rows = [
            EnvRow(
                prompt=(system, Message("user", f"{question}The file is number {number}.")),
                ground_truth="7",
                data_source="openai/gsm8k",
                extra={"index": number},
            )
            for number in range(self._num_prompts)
        ]
        write_rows(rows, folder / "rows.jsonl")
        texts = {"schema": SCHEMA, "observation": repr(_OBSERVATION)}
        (folder / "task_env").mkdir()
        (folder / "task_env" / "__init__.py").write_text(_ENV.format(**texts))
        (folder / "tool.py").write_text(_TOOL.format(**texts))

    def measure(self, case: str, folder: Path) -> None:
        """Plays all batches of a case."""
        checkouts = {"this": _HERE.parent}
        if self._options.against is not None:
            checkouts = {"other": self._options.against.resolve(), **checkouts}
        sides = {name: Side(checkout, self._spec(case, folder), self._device) for name, checkout in checkouts.items()}
        try:
            self._alternate(case, sides)
        finally:
            for side in sides.values():
                side.close()

    @property
    def _device(self) -> str:
        return str(self._options.device)

    def _spec(self, case: str, folder: Path) -> dict[str, Any]:
        engine, _, address = case.partition(".")
        num_turns = (self._repeats + 2) * len(_LOOPS) * self._num_prompts * _GROUP_SIZE
        return {
            "folder": str(folder),
            "address": address,
            "has_engine": engine == "engine",
            "device": self._device,
            "num_prompts": self._num_prompts,
            "group_size": _GROUP_SIZE,
            "scripts": [_script(number) for number in range(1_000_000, 1_000_000 + num_turns)],
        }

    def _alternate(self, case: str, sides: dict[str, Side]) -> None:
        played: dict[tuple[str, str], list[dict[str, float]]] = {(s, loop): [] for s in sides for loop in _LOOPS}
        for repeat in range(-1, self._repeats):  # the first warms up
            for name, side in sides.items():
                for loop in _LOOPS:
                    played[name, loop].append(side.play(loop=loop))
            seconds = ", ".join(f"{' '.join(key)} {batch[-1]['gen_s']:.3f} s" for key, batch in played.items())
            progress(f"{case}, {repeat + 1} of {self._repeats}: {seconds}")
        measured = {key: batches[1:] for key, batches in played.items()}
        tokens = {key: {batch["tokens"] for batch in batches} for key, batches in measured.items()}
        assert all(batch["reward"] == 1.0 for batches in measured.values() for batch in batches), measured
        # The same turns. verl's loop does not write the line break behind the first one.
        assert max(map(max, tokens.values())) / min(map(min, tokens.values())) < 1.01, tokens
        ours = measured["this", "env_agent"]
        for phase in _PHASES:
            self._compare(f"{phase}_vs_tool_agent.{case}", phase, ours, measured["this", "tool_agent"])
            if "other" in sides:
                self._compare(f"{phase}_vs_other.{case}", phase, ours, measured["other", "env_agent"])
            for (name, loop), batches in measured.items():
                key = f"{phase}_s.{case}.{loop}" + (".other" if name == "other" else "")
                self.figures[key] = median([batch[f"{phase}_s"] for batch in batches])
        self.figures[f"tokens_per_row.{case}"] = tokens["this", "env_agent"].pop() / self.figures["episodes"]
        if case.endswith(".threads"):
            self._profile(case, sides)

    def _compare(self, key: str, phase: str, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
        pairs = zip(ours, theirs, strict=True)
        self.ratios[key] = median([one[f"{phase}_s"] / two[f"{phase}_s"] for one, two in pairs])

    def _profile(self, case: str, sides: dict[str, Side]) -> None:
        """Prints the CPU time of a turn by what it was used for."""
        num_turns = self.figures["episodes"] * _TURNS * self._repeats
        columns: dict[tuple[str, str], Counter[str]] = {}
        for name, side in sides.items():
            for loop in _LOOPS:
                stacks = self._options.stacks and str(self._options.stacks.resolve()) + f".{case}.{name}.{loop}"
                times = Counter[str]()
                for _ in range(self._repeats):
                    answer: dict[str, Any] = side.play(loop=loop, profile=True, stacks=stacks)
                    times.update(answer["profile"])
                columns[name, loop] = Counter({label: 1e3 * s / num_turns for label, s in times.items()})  # type: ignore[misc]
                self.figures[f"cpu_ms_per_turn.{case}.{name}.{loop}"] = {
                    label: round(value, 3) for label, value in columns[name, loop].most_common()
                }
        labels = sorted({label for column in columns.values() for label in column})
        labels.sort(key=lambda label: -columns["this", "env_agent"][label])
        progress(f"{case}, CPU ms of a turn: " + " | ".join(" ".join(key) for key in columns))
        for label in [*labels, "all"]:
            values = [column.total() if label == "all" else column[label] for column in columns.values()]
            progress(f"  {label:30}" + " | ".join(f"{value:8.3f}" for value in values))


class Side:
    """The rollouts in one checkout: a process that plays a batch for every line that it gets."""

    def __init__(self, checkout: Path, spec: dict[str, Any], device: str) -> None:
        """Starts it and waits until it is ready. Raises RuntimeError if it ends."""
        path = [str(checkout), str(_HERE), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, **CPU_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        if device != "cpu":
            del environment["VERL_PLATFORM"]
        spec_file, self._log = (Path(spec["folder"]) / name for name in ("spec.json", f"{checkout.name}.log"))
        spec_file.write_text(json.dumps(spec))
        results, end = os.pipe()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "_rollout_side.py"), str(spec_file), str(end)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                env=environment,
                cwd=spec["folder"],
                pass_fds=[end],
            )
        os.close(end)
        self._results = os.fdopen(results)
        self._read()

    def play(self, **command: Any) -> dict[str, Any]:
        """Plays a batch; returns what it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._results.close()

    def _read(self) -> dict[str, Any]:
        line = self._results.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"the rollouts ended with code {code}: {self._log.read_text()[-4_000:]}")
        return json.loads(line)


def _script(number: int) -> tuple[str, str]:
    code = f"print(sum(map(int, open('numbers-{number}').read().split())))"
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    return f"<tool_call>\n{call}\n</tool_call>", f"File {number} has the sum #### 7"


if __name__ == "__main__":
    sys.exit(main())
