"""Checks the subjects of a branch's own commits: an imperative verb first, at most 72 characters, and a body.

    python .ci/check_commits.py [BASE]

Without a base, it takes what `origin/main` does not have.
"""

from __future__ import annotations

import re
import subprocess
import sys

MAX_LENGTH = 72
NO_IMPERATIVE = re.compile(
    r"(?!Embed|Feed|Need|Seed|Speed|Bring|String)\w+(ed|ing|s(?<!ss))$|(A|An|The|No|And|For|In|On|To|With)$"
)


def read_commits(base: str) -> list[tuple[str, str, str]]:
    """Returns short hash, subject and body of all commits since a base, without merges."""
    git = ["git", "log", "--no-merges", "--format=%h%x00%s%x00%b%x01", f"{base}..HEAD"]
    text = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    records = (record.strip("\n").split("\0") for record in text.split("\1"))
    return [(record[0], record[1], record[2]) for record in records if len(record) == 3]


def find_faults(subject: str, body: str) -> list[str]:
    """Returns what is wrong with the message of a commit."""
    verb = subject.split(maxsplit=1)[0] if subject.strip() else ""
    faults = {
        f"has {len(subject)} characters, more than {MAX_LENGTH}": len(subject) > MAX_LENGTH,
        "begins with no verb in the imperative": not verb[:1].isupper() or NO_IMPERATIVE.match(verb) is not None,
        "ends with a full stop": subject.endswith("."),
        "has no body that says why": not body.strip(),
    }
    return [fault for fault, is_there in faults.items() if is_there]


def main() -> None:
    """Prints the faults of all new commits, and exits with 1 if there is one."""
    base = sys.argv[1] if len(sys.argv) > 1 else "origin/main"
    if subprocess.run(["git", "rev-parse", "--quiet", "--verify", base], capture_output=True, check=False).returncode:
        print(f"there is no {base}: the subjects of commits are not checked")
        return
    commits = read_commits(base)
    lines = [
        f"{commit} {fault}: {subject}" for commit, subject, body in commits for fault in find_faults(subject, body)
    ]
    if lines:
        sys.exit("\n".join(lines))
    print(f"{len(commits)} commits since {base}, no fault in their messages")


if __name__ == "__main__":
    main()
