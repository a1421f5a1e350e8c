"""Writes docs/metrics.md from the descriptions beside the code that makes the metrics.

python docs/site/metrics_page.py
"""

from __future__ import annotations

from pathlib import Path

from verl_agentic.verl.extensions.monitoring.metric_joins import METRICS

PAGE = Path(__file__).resolve().parents[1] / "metrics.md"
_INTRO = """# Metrics

For everyone who reads a curve: the unit of each metric of this package, what it is divided by, and which rows count.
`python docs/site/metrics_page.py` generates this page from the descriptions beside the code that makes the metrics
(`METRICS`).

- The first line that matches a name counts. `*` stands for any text.
- **Padding rows** count in none of these metrics. **Void episodes** have no outcome and no reward, so they count only
  where the table says so.
- **Several updates in a step** (`separate_async`): verl joins metrics by words in their names, such as `max`, `min` and
  `sum`. It would log the share `episode/stop/max_tokens` as a maximum. The metrics below are joined as the last column
  says. A mean is weighted by its own denominator if the metric knows it, else by the number of episodes of the update.
- **Entropy and KL**: `batch/entropy` and `batch/ref_kl` are in nats per sampled token. `batch/ref_kl` is the mean of
  `(rho - 1) - ln rho`, `rho = pi_ref / pi`, before the update. verl's `actor/entropy` and
  `actor/kl_loss` are divided as `actor.loss_agg_mode` says. They are per token only with `token-mean`: with
  `seq-mean-token-sum` they are per row, with `seq-mean-token-sum-norm` per row over `loss_scale_factor`. Alarms and
  `diagnose` read `batch/*`.
- **Validation**: verl's `acc` counts sessions without a result as 0, and void episodes are among them. Its
  `acc_success_only`, `reward` and the parts of the reward leave void episodes out. `void` is their share.
- **KL in the reward**: verl's `actor/reward_kl_penalty` is a mean over rows, of means over tokens. Here only rows with
  sampled tokens count, and so they do for the adaptive coefficient.

| metric | unit | per | rows | several updates |
|---|---|---|---|---|
"""


def page() -> str:
    """Returns the text of the page."""
    rows = (f"| `{m.name}` | {m.unit} | {m.per} | {m.rows} | {m.join} |\n" for m in METRICS)
    return _INTRO + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
