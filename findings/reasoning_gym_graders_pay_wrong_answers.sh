#!/usr/bin/env bash
# reasoning-gym 0.1.25.
# Expected: full score for answers that equal the solution, and for none that do not.
# Seen: full score for "0" as a probability of coin flips, for "-" before the solution of gsm_symbolic, and for a decimal
# that is 0.0009 away; less than full score for the list [1,2] where the solution is written [1, 2].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet reasoning-gym==0.1.25
cat > "$folder/show.py" <<'PYTHON'
import reasoning_gym

def full(task, change, count=20):
    dataset = reasoning_gym.create_dataset(task, seed=5, size=count)
    entries = [(entry, change(entry["answer"])) for entry in dataset]
    return sum(dataset.score_answer(answer, entry) == 1.0 for entry, answer in entries if answer != entry["answer"])

paid = {
    "coin_flip, the answer 0": full("coin_flip", lambda answer: "0"),
    "gsm_symbolic, - before the answer": full("gsm_symbolic", lambda answer: f"-{answer}"),
    "decimal_arithmetic, 0.0009 more": full("decimal_arithmetic", lambda answer: str(float(answer) + 0.0009)),
    "list_functions, without spaces": full("list_functions", lambda answer: answer.replace(", ", ",")),
}
for name, num_paid in paid.items():
    print(f"{name}: full score on {num_paid} of 20 rows")
*wrong, right = paid.values()
raise SystemExit(0 if min(wrong) >= 15 and right == 0 else 1)
PYTHON
"$folder/venv/bin/python" "$folder/show.py"
