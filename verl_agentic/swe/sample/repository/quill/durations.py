"""Durations in seconds, as texts such as `1h 30m`."""

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse(text):
    """Returns the seconds of a text such as `90s`, `1h30m` or `2d 4h`."""
    found = re.findall(r"(\d+)\s*([dhms])", text)
    if not found or re.sub(r"(\d+)\s*([dhms])|\s+", "", text):
        raise ValueError(f"a duration has numbers with the units d, h, m, s, got {text!r}")
    return sum(int(number) * _UNITS[unit] for number, unit in found)


def show(seconds, *, max_units=2):
    """Returns a duration in its largest units, at most `max_units` of them."""
    parts, rest = [], seconds
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:max_units]) or "0s"


def clock(seconds):
    """Returns a duration as `H:MM:SS`, or `M:SS` below an hour."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
