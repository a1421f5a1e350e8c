"""Runs in the sandbox: applies a model's checks to a text and writes a line for each, `1` for a pass.

Reads `task.json`: `{"text": ..., "checks": [source, ...]}`. The first function that a source defines is the check.
"""

import inspect
import json
import re
from pathlib import Path


def passes(source: str, text: str) -> bool:
    """Returns whether a text passes a check; False if the check raises."""
    scope = {"re": re, "json": json, "__name__": "check"}
    try:
        exec(compile(source, "<check>", "exec"), scope)
        check = next(value for value in scope.values() if inspect.isfunction(value))
        return bool(check(text))
    except Exception:
        return False


def main() -> None:
    """Applies all checks; earlier results are kept if a later check does not end."""
    task = json.loads(Path("task.json").read_text(encoding="utf-8"))
    with open("verdicts.txt", "w", encoding="utf-8", buffering=1) as verdicts:
        for source in task["checks"]:
            verdicts.write(f"{int(passes(source, task['text']))}\n")


if __name__ == "__main__":
    main()
