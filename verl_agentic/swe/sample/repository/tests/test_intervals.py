import pytest
from quill import intervals


def test_merge_sorts():
    assert intervals.merge([(5, 6), (1, 2)]) == [(1, 2), (5, 6)]


def test_merge_joins_overlaps():
    assert intervals.merge([(1, 4), (3, 6)]) == [(1, 6)]


def test_merge_joins_what_touches():
    assert intervals.merge([(1, 2), (2, 3)]) == [(1, 3)]


def test_merge_of_an_interval_inside_another():
    assert intervals.merge([(1, 9), (2, 3), (4, 5)]) == [(1, 9)]


def test_merge_refuses_an_end_before_the_start():
    with pytest.raises(ValueError):
        intervals.merge([(2, 1)])


def test_gaps_between():
    assert intervals.gaps([(2, 3), (5, 6)], start=0, end=8) == [(0, 2), (3, 5), (6, 8)]


def test_gaps_of_nothing():
    assert intervals.gaps([], start=0, end=3) == [(0, 3)]


def test_gaps_end_at_the_end():
    assert intervals.gaps([(1, 2), (9, 12)], start=0, end=5) == [(0, 1), (2, 5)]


def test_no_gap_where_all_is_covered():
    assert intervals.gaps([(0, 9)], start=1, end=5) == []


def test_overlap():
    assert intervals.overlap((1, 5), (3, 9)) == (3, 5)


def test_intervals_that_touch_have_no_overlap():
    assert intervals.overlap((1, 3), (3, 5)) is None


@pytest.mark.parametrize(("point", "is_covered"), [(0, False), (1, True), (2, True), (3, False)])
def test_covers(point, is_covered):
    assert intervals.covers([(1, 3)], point) is is_covered
