"""Half-open intervals of numbers, as pairs (start, end)."""


def merge(intervals):
    """Returns sorted intervals without overlaps; intervals that touch become one."""
    merged = []
    for start, end in sorted(intervals):
        if start > end:
            raise ValueError(f"an interval must not end before it starts, got {(start, end)}")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def gaps(intervals, *, start, end):
    """Returns the parts of [start, end) that no interval covers."""
    free, at = [], start
    for first, last in merge(intervals):
        if first > at:
            free.append((at, min(first, end)))
        at = max(at, last)
        if at >= end:
            return free
    free.append((at, end))
    return free


def overlap(a, b):
    """Returns the common part of two intervals, or None."""
    start, end = max(a[0], b[0]), min(a[1], b[1])
    return (start, end) if start < end else None


def covers(intervals, point):
    """Tells whether a point lies in one of the intervals."""
    return any(start <= point < end for start, end in intervals)
