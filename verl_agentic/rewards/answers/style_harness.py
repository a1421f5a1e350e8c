"""Runs in the sandbox: applies checks that a model wrote to a text, and writes one line for each, `1` when it passed.

It is given `task.json`: `{"text": ..., "checks": [source, ...]}`. Each source defines a function of the text; the first
one that it defines is the check.
"""

import inspect
import json
import re
from pathlib import Path


def passes(source: str, text: str) -> bool:
    """Returns whether a text passes a check; one that raises is not passed."""
    scope = {"re": re, "json": json, "__name__": "check"}
    try:
        exec(compile(source, "<check>", "exec"), scope)
        check = next(value for value in scope.values() if inspect.isfunction(value))
        return bool(check(text))
    except Exception:
        return False


def main() -> None:
    """Applies all checks; what was found so far stays when a later one does not end."""
    task = json.loads(Path("task.json").read_text(encoding="utf-8"))
    with open("verdicts.txt", "w", encoding="utf-8", buffering=1) as verdicts:
        for source in task["checks"]:
            verdicts.write(f"{int(passes(source, task['text']))}\n")


if __name__ == "__main__":
    main()
