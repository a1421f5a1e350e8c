"""An environment and a reward function in TRL's form, for the examples; they import nothing of this package."""

from __future__ import annotations


class GuessNumber:
    """Find a secret number by guessing."""

    def __init__(self) -> None:
        self.secret = self.num_guesses = 0
        self.is_found = False

    def reset(self, secret: int, low: int, high: int, **kwargs: object) -> str:
        """Begins a game."""
        self.secret, self.num_guesses, self.is_found = secret, 0, False
        return f" It is between {low} and {high}."

    def guess(self, number: int) -> str:
        """
        Guesses the number.

        Args:
            number: The guess.

        Returns:
            Whether the number is right, too low or too high.
        """
        self.num_guesses += 1
        self.is_found |= number == self.secret
        return "right" if number == self.secret else "too low" if number < self.secret else "too high"

    def get_reward(self) -> float:
        return float(self.is_found)


def few_guesses(prompts: list, completions: list, environments: list, low: list, high: list, **kwargs: object):
    """Returns 1 for one guess, 0 for as many guesses as there are numbers."""
    return [
        max(0.0, 1 - (env.num_guesses - 1) / (max_number - min_number)) if env.is_found else 0.0
        for env, min_number, max_number in zip(environments, low, high, strict=True)
    ]
