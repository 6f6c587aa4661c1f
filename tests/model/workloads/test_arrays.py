"""Arrays as people write them."""

import pytest

from mooring.model.errors import InvalidInput, NotFound
from mooring.model.workloads.arrays import Array, parse_array, select_tasks


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
def test_an_invalid_array_is_refused(written: str):
    with pytest.raises(InvalidInput) as refused:
        parse_array(written)
    assert refused.value.code == "invalid-array"


def test_the_indexes_of_an_array_are_its_own():
    array = parse_array("1-7:3")
    assert [array.index(number) for number in range(array.count)] == [1, 4, 7]


@pytest.mark.parametrize(
    ("array", "written", "tasks"),
    [
        ("0-9", "7", [7]),
        ("0-9", "3,5-9", [3, 5, 6, 7, 8, 9]),
        ("1-9:2", "1,5-9:2", [0, 2, 3, 4]),
        ("1-9:2", "1-9:4", [0, 2, 4]),
        ("10-19", "12,12,11", [1, 2]),
    ],
)
def test_a_list_of_indexes_selects_tasks_of_an_array(array: str, written: str, tasks: list[int]):
    assert select_tasks(parse_array(array), written, "sweep") == tasks


@pytest.mark.parametrize(
    ("written", "unknown"), [("10", 10), ("0", 0), ("1-8", 2), ("3,1-11:2", 11), ("1-2147483647:2", 11), ("5,4", 4)]
)
def test_an_index_that_the_array_does_not_have_is_named(written: str, unknown: int):
    with pytest.raises(NotFound, match=rf"'sweep' has no index {unknown}: its indexes are 1-9 by 2"):
        select_tasks(parse_array("1-9:2"), written, "sweep")


@pytest.mark.parametrize("written", ["", "a", "1,", "1,,2", "3-1", "0-9%2", " 1", "1," * 600, "0-9,0"])
def test_an_invalid_list_of_indexes_is_refused(written: str):
    with pytest.raises(InvalidInput) as refused:
        select_tasks(parse_array("0-9"), written, "sweep")
    assert refused.value.code == "invalid-array"
