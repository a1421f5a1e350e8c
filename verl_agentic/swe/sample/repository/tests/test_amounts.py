import pytest
from quill import amounts


@pytest.mark.parametrize(("text", "cents"), [("12", 1200), ("12.34", 1234), ("1,234.50", 123450), (".5", 50)])
def test_parse(text, cents):
    assert amounts.parse(text) == cents


def test_parse_of_one_decimal():
    assert amounts.parse("3.5") == 350


def test_parse_of_a_negative_amount():
    assert amounts.parse("-3.05") == -305


@pytest.mark.parametrize("text", ["", "-", ".", "1.234", "a", "1e3"])
def test_parse_refuses(text):
    with pytest.raises(ValueError):
        amounts.parse(text)


def test_show():
    assert amounts.show(123450) == "1,234.50"


def test_show_of_cents():
    assert amounts.show(5) == "0.05"


def test_show_of_a_negative_amount():
    assert amounts.show(-305) == "-3.05"


def test_split_by_weights():
    assert amounts.split(100, [1, 3]) == [25, 75]


def test_split_loses_no_cent():
    assert amounts.split(100, [1, 1, 1]) == [34, 33, 33]


def test_split_refuses_weights():
    with pytest.raises(ValueError):
        amounts.split(100, [0, 0])


def test_split_refuses_a_negative_weight():
    with pytest.raises(ValueError):
        amounts.split(100, [2, -1])


def test_add_tax():
    assert amounts.add_tax(1000, 19) == 1190


def test_add_tax_rounds_half_up():
    assert amounts.add_tax(50, 5) == 53


def test_add_tax_to_a_negative_amount():
    assert amounts.add_tax(-50, 5) == -53
