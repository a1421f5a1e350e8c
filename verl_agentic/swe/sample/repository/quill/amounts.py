"""Amounts of money in whole cents."""

from fractions import Fraction


def parse(text):
    """Returns the cents of a text such as `12`, `-3.5` or `1,234.50`."""
    sign, digits = 1, text.strip()
    if digits.startswith("-"):
        sign, digits = -1, digits[1:]
    whole, _, part = digits.replace(",", "").partition(".")
    if not (whole or part) or not (whole + part).isdigit() or len(part) > 2:
        raise ValueError(f"an amount has digits and at most two decimals, got {text!r}")
    return sign * (int(whole or 0) * 100 + int(part.ljust(2, "0") or 0))


def show(cents):
    """Returns an amount as text, with two decimals and separated thousands."""
    sign = "-" if cents < 0 else ""
    whole, part = divmod(abs(cents), 100)
    return f"{sign}{whole:,}.{part:02}"


def split(cents, weights):
    """Splits an amount by weights into whole cents whose sum is the amount; the first parts get the rest."""
    total = sum(weights)
    if total <= 0 or min(weights) < 0:
        raise ValueError(f"weights must not be negative, and one must be positive, got {weights}")
    parts = [int(Fraction(cents * weight, total) // 1) for weight in weights]
    for index in range(cents - sum(parts)):
        parts[index] += 1
    return parts


def add_tax(cents, percent):
    """Returns an amount with tax, rounded half away from zero."""
    exact = Fraction(cents) * (100 + Fraction(str(percent))) / 100
    sign = -1 if exact < 0 else 1
    return sign * int(abs(exact) + Fraction(1, 2))
