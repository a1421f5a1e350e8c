"""The process behind `rewards.math`: reads one JSON request per line, writes one verdict per line."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any


def _equal(answer: str, ground_truth: str) -> bool:
    from math_verify import parse, verify

    # The parent holds the deadline, and it kills; 0 and None switch math-verify's own alarm signals off.

    gold = parse(f"\\boxed{{{ground_truth}}}", parsing_timeout=0)
    if not gold:
        raise ValueError("the ground truth is no mathematical expression")
    predicted = parse(f"\\boxed{{{answer}}}", parsing_timeout=0)
    return bool(verify(gold, predicted, timeout_seconds=None))


def _reply(line: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
        return {"equal": _equal(request["answer"], request["ground_truth"])}
    except Exception as cause:  # whatever symbolic algebra raises belongs to this request alone
        return {"error": f"{type(cause).__name__}: {cause}"}


def main() -> None:
    """Serves until stdin closes."""
    logging.disable(logging.WARNING)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing but verdicts may reach the parent's pipe
    for line in sys.stdin:
        replies.write(json.dumps(_reply(line)) + "\n")


if __name__ == "__main__":
    main()
