"""Arrays as people write them."""

import pytest

from mooring.model.arrays import Array, parse_array
from mooring.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "array"),
    [
        ("5", Array(5, 1, 1)),
        ("0-9", Array(0, 1, 10)),
        ("1-100:2", Array(1, 2, 50)),
        ("0-9999%50", Array(0, 1, 10_000, 50)),
        ("3-3%1", Array(3, 1, 1, 1)),
        ("0-10:4%2", Array(0, 4, 3, 2)),
    ],
)
def test_an_array_is_read(written: str, array: Array):
    assert parse_array(written) == array


@pytest.mark.parametrize("written", ["", "a", "5-", "9-0", "0-9:0", "0-9%0", "0-9%", "-1", "1,3", "0-9999999999"])
def test_what_is_no_array_is_refused(written: str):
    with pytest.raises(InvalidInput) as refused:
        parse_array(written)
    assert refused.value.code == "invalid-array"


def test_the_indexes_of_an_array_are_its_own():
    array = parse_array("1-7:3")
    assert [array.index(number) for number in range(array.count)] == [1, 4, 7]
