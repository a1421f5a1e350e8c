"""A discriminator between experts and the policy: logistic regression over words and pairs of words.

Its logit is a reward (inverse reinforcement learning as an adversarial game): with D the probability that an expert
wrote a text, log D - log(1 - D) is the log-ratio of its likelihoods for experts and policy.

Paper: https://arxiv.org/abs/1710.11248 (AIRL: the reward is the discriminator's logit), after
https://arxiv.org/abs/1606.03476 (GAIL). Deviations: in the papers the discriminator is a network over states and
actions, trained between updates of the policy. Here it is a linear model of texts, trained between runs.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_agentic.base.errors import ConfigError, DataError

_WORD = re.compile(r"\w+|[^\w\s]")
_MAX_CHARS = 20_000
_MAX_FEATURES = 50_000


@dataclass(frozen=True, kw_only=True)
class Discriminator:
    """Weights of words and pairs of words."""

    weights: Mapping[str, float]
    bias: float

    @classmethod
    def fit(cls, expert: Sequence[str], policy: Sequence[str], *, steps: int = 200, l2: float = 1e-3) -> Discriminator:
        """Fits a discriminator of two sets of texts, deterministically.

        Both sets have the same total weight.

        Args:
            steps: number of steps of gradient descent over all texts.
            l2: weight of the squared weights in the loss.

        Raises:
            DataError: a set is empty.
        """
        if not expert or not policy:
            raise DataError(
                f"a discriminator needs texts of both sides, got {len(expert)} of experts and {len(policy)} of the "
                "policy; store more trajectories"
            )
        rows = [(_extract_features(text), side) for side, texts in ((1.0, expert), (0.0, policy)) for text in texts]
        counts = Counter(name for features, _ in rows for name in features)
        names = {name for name, _ in counts.most_common(_MAX_FEATURES)}
        rows = [({k: v for k, v in features.items() if k in names}, side) for features, side in rows]
        share = {1.0: 0.5 / len(expert), 0.0: 0.5 / len(policy)}
        weights, bias = dict.fromkeys(names, 0.0), 0.0
        for _ in range(steps):
            slope: dict[str, float] = {name: l2 * weight for name, weight in weights.items()}
            slope_bias = 0.0
            for features, side in rows:
                error = share[side] * (_compute_chance(_compute_logit(features, weights, bias)) - side)
                slope_bias += error
                for name, value in features.items():
                    slope[name] += error * value
            # Features of a text have norm 1, so the curvature of the loss is at most 1/2 + l2, and a step size of 2
            # converges.
            for name, value in slope.items():
                weights[name] -= 2.0 * value
            bias -= 2.0 * slope_bias
        return cls(weights=weights, bias=bias)

    def logit(self, text: str) -> float:
        """Returns log D - log(1 - D): above 0 if an expert is the more likely author."""
        return _compute_logit(_extract_features(text), self.weights, self.bias)

    def save(self, path: Path) -> None:
        """Writes the weights as JSON."""
        path.write_text(json.dumps({"bias": self.bias, "weights": dict(self.weights)}), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Discriminator:
        """Returns what `save` wrote. Raises ConfigError if the file does not exist or is invalid."""
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            return cls(weights={str(k): float(v) for k, v in read["weights"].items()}, bias=float(read["bias"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
            raise ConfigError(
                f"cannot read the discriminator {str(path)!r}, got {type(cause).__name__}: {cause}; make one with "
                "`verl-agentic reward imitate`"
            ) from cause


def _extract_features(text: str) -> dict[str, float]:
    """Returns the words and pairs of words of a text, with values of Euclidean norm 1."""
    words = _WORD.findall(text[-_MAX_CHARS:].casefold())
    features = dict.fromkeys([*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))])
    return dict.fromkeys(features, 1.0 / math.sqrt(len(features))) if features else {}


def _compute_logit(features: Mapping[str, float], weights: Mapping[str, float], bias: float) -> float:
    return bias + sum(weights.get(name, 0.0) * value for name, value in features.items())


def _compute_chance(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, logit))))
