import pytest
from quill import durations


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("2d 4h", 187_200)])
def test_parse(text, seconds):
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "3x", "1h and 2m"])
def test_parse_refuses(text):
    with pytest.raises(ValueError):
        durations.parse(text)


def test_show():
    assert durations.show(5400) == "1h 30m"


def test_show_leaves_out_small_units():
    assert durations.show(90_061) == "1d 1h"


def test_show_of_more_units():
    assert durations.show(90_061, max_units=4) == "1d 1h 1m 1s"


def test_show_of_nothing():
    assert durations.show(0) == "0s"


def test_clock():
    assert durations.clock(75) == "1:15"


def test_clock_with_hours():
    assert durations.clock(3_725) == "1:02:05"


def test_clock_of_whole_hours():
    assert durations.clock(7_200) == "2:00:00"
