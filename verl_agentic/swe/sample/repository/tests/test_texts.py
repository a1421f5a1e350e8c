import pytest
from quill import texts


def test_slug_joins_words():
    assert texts.slug("Hello, World!") == "hello-world"


def test_slug_removes_accents():
    assert texts.slug("Crème brûlée") == "creme-brulee"


def test_slug_takes_a_separator():
    assert texts.slug("a b c", separator="_") == "a_b_c"


def test_slug_is_cut():
    assert texts.slug("alpha beta", max_chars=7) == "alpha-b"


def test_slug_that_is_cut_ends_with_no_separator():
    assert texts.slug("alpha beta", max_chars=6) == "alpha"


def test_wrap_fills_lines():
    assert texts.wrap("aa bb cc", 5) == ["aa bb", "cc"]


def test_wrap_keeps_a_line_of_exactly_the_width():
    assert texts.wrap("aaa bbb ccc", 7) == ["aaa bbb", "ccc"]


def test_wrap_gives_a_long_word_its_own_line():
    assert texts.wrap("a bbbbbbbb c", 4) == ["a", "bbbbbbbb", "c"]


def test_wrap_of_nothing():
    assert texts.wrap("", 4) == []


def test_wrap_refuses_no_width():
    with pytest.raises(ValueError):
        texts.wrap("a", 0)


def test_shorten_keeps_what_fits():
    assert texts.shorten("abcdef", 6) == "abcdef"


def test_shorten_marks_what_is_cut():
    assert texts.shorten("abcdefgh", 6) == "abc..."


def test_shorten_to_less_than_the_mark():
    assert texts.shorten("abcdefgh", 2) == ".."


def test_columns_are_aligned():
    assert texts.columns([["a", "bb"], ["ccc", "d"]]) == ["a    bb", "ccc  d"]


def test_columns_of_rows_of_several_lengths():
    assert texts.columns([["a"], ["bb", "c"]]) == ["a", "bb  c"]


def test_columns_of_nothing():
    assert texts.columns([]) == []
