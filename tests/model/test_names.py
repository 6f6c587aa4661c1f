"""Names that tenants give."""

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.names import check_name, shown


@pytest.mark.parametrize("name", ["a", "0", "web", "web-1", "a" * 63, "a--b"])
def test_good_names_are_taken_as_they_are(name: str):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a b", "a\n", "ä", "a" * 64, "../x"])
def test_bad_names_are_refused(name: str):
    with pytest.raises(InvalidInput, match="pool") as refused:
        check_name(name, what="pool")
    assert refused.value.code == "invalid-name"


def test_control_characters_of_a_tenant_do_not_reach_the_terminal():
    assert shown("red \x1b[31m\nnext\u202e") == "red \\x1b[31m\\nnext\\u202e"
    assert shown("Bücher 本") == "Bücher 本"
