"""Every report page, made of small records in which a model tries to take the page over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl_agentic.checks.dryrun.dryrun_page import write_dryrun_page
from verl_agentic.checks.dryrun.gradient_map import KindCount, Proof
from verl_agentic.checks.dryrun.step_report import FirstError, Report, Stage
from verl_agentic.evaluate.evaluation_page import write_evaluation_page, write_turns_page
from verl_agentic.evaluate.evaluation_run import summarise
from verl_agentic.graders.reward_audit.compare_page import write_lab_page
from verl_agentic.graders.reward_audit.compare_rubrics import GroupComparison, Lab, TrajectoryReward
from verl_agentic.graders.reward_audit.compare_rubrics import TrajectoryComparison as Compared
from verl_agentic.observe.quickstart_report import ComparedRun, write_report

EVIL = '</pre><script>window.broken = 1</script><img src=http://evil.example/x.png onerror="window.broken = 2">'
LONG = "an_answer_without_a_space_" * 12


def _quickstart(path: Path) -> None:
    segments = [
        {"kind": "prompt", "text": f"question {EVIL}"},
        {"kind": "model", "text": EVIL + LONG},
        {"kind": "tool", "text": "an observation"},
    ]
    episodes = [
        {"outcome": float(i), "question": f"task {EVIL}", "stop_reason": "answered", "segments": segments}
        for i in range(2)
    ]
    figures: dict[str, Any] = {"success_base": 0.0, "success_sft": 0.375, "success_rl": 0.875, "num_eval_tasks": 256}
    figures |= {"steps": 40, "wall_s": 630.0, "cpu_s": 900.0, "peak_rss_gb": 6.04, "seed": 3, EVIL: EVIL}
    metrics = [{"step": s, "episode/acc": 0.4 + s / 90, "critic/score/mean": 0.3 + s / 100} for s in range(1, 41)]
    control = ComparedRun(figures=figures, metrics=[{**row, "episode/acc": 0.4} for row in metrics])
    stages = ["sft", "rl"]
    write_report(
        path, figures=figures, stages=stages, metrics=metrics, before=episodes, after=episodes[::-1], other=control
    )


def _lab(path: Path) -> None:
    groups = []
    for number in range(40):
        paid = [(1.0 * (place < number % 5), 0.8 * (place < number % 4) + 0.05 * place) for place in range(4)]
        means = [sum(pair[i] for pair in paid) / 4 for i in (0, 1)]
        samples = tuple(
            Compared(
                id=f"task {number} {EVIL}/{place}",
                answer=EVIL + LONG,
                old=TrajectoryReward(reward=old, acc=old, advantage=old - means[0]),
                new=TrajectoryReward(reward=new, acc=old, advantage=new - means[1]),
            )
            for place, (old, new) in enumerate(paid)
        )
        facts = {"step": number // 8, "split": "train", "is_dropped_old": number % 5 in (0, 4), "is_dropped_new": False}
        groups.append(
            GroupComparison(name=f"task {number}", samples=samples, old_mean=means[0], new_mean=means[1],
                            rank_correlation=0.5, **facts)
        )  # fmt: skip
    write_lab_page(path, Lab(estimator="grpo", groups=tuple(groups)), title=f"short.yaml on outputs/run {EVIL}")


def _records(samples: int) -> list[dict[str, Any]]:
    records = []
    for task in range(60):
        for sample in range(samples):
            is_right, is_void = (task * 7 + sample * 3) % 5 > 1, (task, sample) == (3, 0)
            stop = (
                "infra_error"
                if is_void
                else ("answered", "max_turns", "answered")[task % 3]
                if is_right
                else "max_turns"
            )
            numbers = dict.fromkeys(("num_turns", "model_tokens", "response_tokens", "tool_calls", "tool_errors"), 2.0)
            records.append(
                {"uid": f"t{task}", "task_id": f"task {task} {EVIL}", "session": sample, "index": 0, "is_void": is_void,
                 "acc": float(is_right), "stop_reason": stop, "error": f"gone {EVIL}{LONG}" if is_void else "",
                 "id_source": "exact", "numbers": numbers}
            )  # fmt: skip
    return records


def _evaluation(path: Path, samples: int = 4) -> None:
    records = _records(samples)
    summary = {"env": f"python_math {EVIL}", "model": "m", "mode": "chat", "out": "o", **summarise(records)}
    write_evaluation_page(path, summary=summary, rows=records, viewer="viewer.html")


def _single(path: Path) -> None:
    _evaluation(path, samples=1)


def _turns(path: Path) -> None:
    points = [
        {"max_turns": n, "mean": 0.2 + n / 16, "stderr": 0.03, "ci95": [0.1 + n / 16, 0.3 + n / 16], "episodes": 64}
        for n in (1, 2, 4, 8)
    ]
    write_turns_page(path, [{**point, "void": 0} for point in points], title=f"python_math {EVIL} with m")


def _dryrun(path: Path) -> None:
    took = (22.0, 3.4, None, 0.4, 0.1, None, 1.2, 0.3)
    names = ("start", "rollout", "reward", "log_probs", "advantage", "gradient", "update", "weights")
    stages = [Stage(name=name, seconds=s, seen=[f"{name} {EVIL}{LONG}"]) for name, s in zip(names, took, strict=True)]
    stages[2].fail(f"KeyError: {EVIL}")
    stages[4].warn("all episodes of every group earned the same")
    stages[7].status = "not reached"
    kinds = {
        "model": KindCount(tokens=120, masked_in=120, with_gradient=96),
        "tool": KindCount(tokens=64),
        f"user {EVIL}": KindCount(tokens=9),
    }
    error = FirstError(stage="reward", type="KeyError", message=EVIL + LONG, where="env.py:3", trace=EVIL)
    write_dryrun_page(
        path,
        Report(stages=stages, proof=Proof(kinds=kinds, due=96, due_with_gradient=96), error=error),
        seconds=31.0,
        model=f"tiny {EVIL}",
        rows="32 rows of python_math",
        policy="scripted",
        changes={f"a CPU has no {EVIL}": [f"trainer.n_gpus_per_node: 8 -> 1 {LONG}"]},
        log="outputs/dryrun/main_ppo.log",
    )


PAGES: dict[str, Callable[[Path], None]] = {
    "quickstart": _quickstart,
    "lab": _lab,
    "evaluation": _evaluation,
    "single": _single,
    "turns": _turns,
    "dryrun": _dryrun,
}
