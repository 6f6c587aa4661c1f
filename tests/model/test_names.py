"""Names that tenants give."""

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.names import check_name, shown, without_formula


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


@pytest.mark.parametrize("text", ["=1+1", "@SUM(1)", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "\t=1", "-f(1)"])
def test_formula_of_a_tenant_is_text_in_a_csv_file(text: str):
    assert without_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "-", "web-1", "-5m", "-2.5", "+3", "12", "a=b", "1|2"])
def test_names_numbers_and_times_stay_as_they_are_in_a_csv_file(text: str):
    assert without_formula(text) == text
