"""Measures how fast `verl-agentic view` opens a long run, and how smoothly its list scrolls, in a real browser.

    python benchmarks/viewer.py [--quick] [--tokens N]

A log of 50,000 trajectories (groups of 8; 5,000 with --quick) is generated. Opening is from the start of the command,
with all its imports, to the first lines of the list and the first trajectory's tokens on the screen; the browser is
already open, and the machine has the log in its cache from writing it. Beside it a run of 800 trajectories is opened,
alternating. Scrolling is by 300 pixels in every frame. What counts is the share of frames that come late (after more
than 50 ms); that of an empty page, which is scrolled in the same way and in turn, tells how busy the machine is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _report import Target, median, progress, report

from verl_agentic.log.arrow_batches import to_batch
from verl_agentic.log.reader import write_run
from verl_agentic.log.schema import SCHEMAS

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_GROUP_SIZE = 8
_ROWS_PER_BATCH = 512
_GROUPS_PER_STEP = 64
_FEW = 800
_LATE_MS = 50.0
_TARGETS = {
    "open_50k_s": Target(bound=3.0, at_least=False),
    "late_frames_share": Target(bound=0.05, at_least=False),
    "lines_in_page": Target(bound=60, at_least=False),
}
_SCROLL = """(frames) => new Promise((done) => {
  const list = document.getElementById("list");
  const times = [];
  const next = (now) => {
    times.push(now);
    list.scrollTop += 300;
    if (times.length <= frames) requestAnimationFrame(next);
    else done(times.slice(1).map((time, place) => time - times[place]));
  };
  requestAnimationFrame(next);
})"""
_FRAMES = 80
_SCROLLS = 5
_EMPTY = """<div id="list" style="height: 800px; overflow: auto"><div style="height: 400000px"></div></div>"""
_JUMP = """(place) => {
  const list = document.getElementById("list");
  list.scrollTop = list.scrollHeight * place;
}"""


def main() -> int:
    """Measures, prints, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5,000 trajectories, two repeats")
    parser.add_argument("--tokens", type=int, default=256, help="of every response (default %(default)s)")
    args = parser.parse_args()
    count, repeats = (5_000, 2) if args.quick else (50_000, 5)
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        return _nothing(f"none of {_BROWSERS} is on this machine")
    with tempfile.TemporaryDirectory(prefix="viewer_benchmark_") as folder:
        long, short = Path(folder) / "long", Path(folder) / "short"
        for run, size in ((long, count), (short, _FEW)):
            write_log(run, trajectories=size, tokens=args.tokens)
        size_mb = sum(path.stat().st_size for path in long.rglob("*.arrows")) / 1e6
        progress(f"{count} trajectories of {args.tokens} tokens, {size_mb:.0f} MB")
        figures = _measure(browser, long, short, repeats=repeats)
    figures |= {"trajectories": count, "log_mb": round(size_mb, 1), "tokens_per_trajectory": args.tokens}
    figures["open_50k_s"] = None if args.quick else figures["open_s"]
    return report(
        "viewer",
        ratios={"open_long_over_short": round(figures["open_s"] / figures["open_short_s"], 2)},
        figures=figures,
        targets=_TARGETS,
        reasons={"open_50k_s": "--quick opens fewer trajectories"} if args.quick else {},
    )


def write_log(folder: Path, *, trajectories: int, tokens: int) -> None:
    """Writes a run's log: made-up episodes of two turns, those of a batch repeated with other keys and rewards."""
    chance, noise = random.Random(0), np.random.default_rng(0)
    played = [_episode(chance, noise, tokens=tokens) for _ in range(min(_ROWS_PER_BATCH, trajectories))]
    for table, place in (("trajectories", 0), ("updates", 1)):
        template = to_batch([episode[place] for episode in played], SCHEMAS[table])
        path = folder / "trajectories" / f"{table}-made-0-00000000-00000.arrows"
        path.parent.mkdir(parents=True, exist_ok=True)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMAS[table], options=options) as stream:
            for start in range(0, trajectories, template.num_rows):
                rows = min(template.num_rows, trajectories - start)
                stream.write_batch(_renumbered(template.slice(0, rows), first=start, noise=noise))
    steps = range(1, trajectories // (_GROUP_SIZE * _GROUPS_PER_STEP) + 2)
    write_run(folder, metrics=[(step, {"episode/acc": 0.5, "time/generate_s": 5.0}) for step in steps])


def _renumbered(template: pa.RecordBatch, *, first: int, noise: np.random.Generator) -> pa.RecordBatch:
    numbers = np.arange(first, first + template.num_rows)
    groups = numbers // _GROUP_SIZE
    changed = {
        "uid": [f"group-{group:08d}" for group in groups],
        "session": numbers % _GROUP_SIZE,
        "step": 1 + groups // _GROUPS_PER_STEP,
        "trained_step": 1 + groups // _GROUPS_PER_STEP,
        "task_id": [f"task {group % 997}" for group in groups],
        "reward": noise.random(template.num_rows),
        "mean_advantage": noise.normal(size=template.num_rows),
    }
    columns = [
        pa.array(changed[field.name], field.type) if field.name in changed else column
        for field, column in zip(template.schema, template.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=template.schema)


def _episode(
    chance: random.Random, noise: np.random.Generator, *, tokens: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    half = tokens // 2
    mask = [1] * half + [0] * (tokens // 8) + [1] * (tokens - half - tokens // 8)
    log_probs = (-noise.exponential(0.4, tokens) * mask).astype(np.float32)
    said = " ".join(chance.choice(("now", "compute", "the", "product", "again", "then", "answer")) for _ in range(half))
    call = {
        "name": "python",
        "arguments": '{"code": "print(6 * 7)"}',
        "result": "42",
        "is_error": False,
        "elapsed_s": 0.2,
    }
    turns = [
        {"index": 0, "text": said, "content": said, "calls": [call], "observations": ["42"], "num_tokens": half},
        {"index": 1, "text": "It is 42.", "content": "It is 42.", "calls": [], "observations": [], "num_tokens": half},
    ]
    segments = [
        {"start": 0, "end": half, "kind": "model", "turn": 0},
        {"start": half, "end": half + tokens // 8, "kind": "tool", "turn": 0},
        {"start": half + tokens // 8, "end": tokens, "kind": "model", "turn": 1},
    ]
    trajectory = {
        "uid": "", "session": 0, "index": 0, "split": "train", "step": 1, "place": "last", "role": "policy",
        "loop": "env_agent", "env": "python_math", "data_source": "made_up",
        "stop_reason": chance.choice(("answered", "max_turns", "env_done")), "acc": float(chance.random() < 0.5),
        "num_turns": 2, "num_calls": 1, "tools": ["python"],
        "num_model_tokens": sum(mask), "num_response_tokens": tokens,
        "prompt_ids": [chance.randrange(50_000) for _ in range(64)],
        "response_ids": [chance.randrange(50_000) for _ in range(tokens)], "response_mask": mask,
        "turn_ids": [0] * (half + tokens // 8) + [1] * (tokens - half - tokens // 8),
        "rollout_log_probs": log_probs.tolist(),
        "token_rewards": [0.0] * tokens, "segments": segments, "turns": turns, "final_answer": "42",
        "prompt": [{"role": "user", "content": "What is six times seven?", "name": "", "calls": ""}],
    }  # fmt: skip
    update = {
        "uid": "", "session": 0, "index": 0, "num_trained_tokens": sum(mask),
        "advantages": (np.array(mask) * 0.5).tolist(),
        "old_log_probs": (log_probs * 1.01).tolist(), "entropies": noise.exponential(0.5, tokens).tolist(),
    }  # fmt: skip
    return trajectory, update


def _measure(browser: str, long: Path, short: Path, *, repeats: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    opened: dict[Path, list[float]] = {long: [], short: []}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(repeats):
            for run in (short, long):
                page = chromium.new_page(viewport={"width": 1400, "height": 900})
                with _opened(page, run, opened[run]):
                    page.close()
        page = chromium.new_page(viewport={"width": 1400, "height": 900})
        with _opened(page, long, []):
            figures = _on_open_page(page)
        chromium.close()
    return {"open_s": median(opened[long]), "open_short_s": median(opened[short]), **figures}


@contextmanager
def _opened(page: Any, run: Path, times: list[float]) -> Iterator[None]:
    """Serves a run and opens it while a block runs; appends how long that took."""
    code = f"import sys; from verl_agentic.cli import main; sys.exit(main(['view', {str(run)!r}, '--no-browser']))"
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            page.goto(server.stdout.readline().split()[0])
            page.wait_for_selector(".group:not(.loading)")
            page.wait_for_selector(".t")
            times.append(time.perf_counter() - start)
            progress(f"{run.name}: {times[-1]:.2f} s")
            yield
        finally:
            server.terminate()
            server.wait(timeout=20)


def _on_open_page(page: Any) -> dict[str, Any]:
    page.wait_for_selector("html[data-ready]", state="attached")
    frames, empty_frames = [], []
    with page.context.browser.new_page() as empty:
        empty.set_content(_EMPTY)
        for _ in range(_SCROLLS):
            for scrolled, times in ((empty, empty_frames), (page, frames)):
                scrolled.bring_to_front()
                times += scrolled.evaluate(_SCROLL, _FRAMES)
    page.bring_to_front()
    lines = page.locator(".group").count()
    late, late_anyway = (sum(frame > _LATE_MS for frame in all_) / len(all_) for all_ in (frames, empty_frames))
    return {
        "frame_ms_median": median(frames),
        "frame_ms_p95": round(float(np.percentile(frames, 95)), 1),
        "late_frames_share": round(late, 4),
        "late_frames_share_of_empty_page": round(late_anyway, 4),
        "late_frames_excess": round(late - late_anyway, 4),
        "lines_in_page": lines,
        "jump_ms": median([_timed(lambda place=place: _jump(page, place)) for place in (0.9, 0.35, 0.6, 0.15, 0.75)]),
        "sort_ms": median([_timed(lambda sort=sort: _sort(page, sort)) for sort in ("reward", "spread", "length")]),
        "search_s": round(_timed(lambda: _search(page)) / 1e3, 2),
    }


def _timed(act: Callable[[], None]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1e3


def _jump(page: Any, place: float) -> None:
    page.evaluate(_JUMP, place)
    page.wait_for_function("() => document.querySelector('.group') && !document.querySelector('.group.loading')")


def _sort(page: Any, sort: str) -> None:
    with page.expect_response(lambda answer: f"sort={sort}" in answer.url):
        page.select_option("#sort", sort)
    page.wait_for_selector("#list:not([aria-busy])")


def _search(page: Any) -> None:
    with page.expect_response(lambda answer: "text=nowhere" in answer.url, timeout=120_000):
        page.fill("#search", "nowhere to be found")


def _nothing(reason: str) -> int:
    figures: dict[str, Any] = dict.fromkeys(_TARGETS)
    return report("viewer", ratios={}, figures=figures, targets=_TARGETS, reasons=dict.fromkeys(_TARGETS, reason))


if __name__ == "__main__":
    sys.exit(main())
