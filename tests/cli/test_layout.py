"""Tables on a terminal of any width, and the formats of lists."""

from __future__ import annotations

import json

import pytest
import yaml

from mooring.cli.rendering.layout import Column, displayed_width, fit_columns, shortened_to
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_on_terminal
from tests.client.fake_server import FakeServer

COLUMNS = (
    Column("NAME"),
    Column("STATUS", drop=0),
    Column("POOL", drop=2),
    Column("AGE", number=True),
    Column("REASON", cut=True),
)
WIDTHS = (20, 10, 10, 5, 80)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        # 20 + 10 + 10 + 5 + 80 and four gaps of 2.
        (133, {0: 20, 1: 10, 2: 10, 3: 5, 4: 80}),
        # The reason is cut first: 100 - 45 - 8.
        (100, {0: 20, 1: 10, 2: 10, 3: 5, 4: 47}),
        (69, {0: 20, 1: 10, 2: 10, 3: 5, 4: 16}),
        # Then the pool goes, and the reason gets its space.
        (68, {0: 20, 1: 10, 3: 5, 4: 27}),
        # Then the rightmost of equal priority.
        (50, {0: 20, 1: 10, 3: 5}),
        (34, {0: 20, 1: 10}),
        # The name is cut only when nothing else can go.
        (22, {0: 10, 1: 10}),
    ],
)
def test_narrow_terminal_cuts_text_then_drops_columns_by_priority(width: int, expected: dict[int, int]) -> None:
    assert fit_columns(COLUMNS, WIDTHS, width, gap=2, drop=True) == expected


def test_requested_columns_are_cut_but_never_dropped() -> None:
    sizes = fit_columns(COLUMNS, WIDTHS, 50, gap=2, drop=False)
    assert set(sizes) == {0, 1, 2, 3, 4}
    assert sum(sizes.values()) + 8 <= 50


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("short", 5, "short"), ("longer", 5, "long…"), ("计算节点", 5, "计算…"), ("e\u0301tude", 4, "e\u0301tu…")],
)
def test_text_is_cut_by_its_width_on_the_screen(text: str, width: int, expected: str) -> None:
    assert shortened_to(text, width) == expected
    assert displayed_width(expected) <= width


def test_list_has_every_format(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", labels={"app": "web"})
    server.add("db", labels={"app": "db"})
    whole = json.loads(mooring("ps", "-o", "json").stdout)
    assert yaml.safe_load(mooring("ps", "-o", "yaml").stdout) == whole
    assert {each["name"] for each in whole["workloads"]} == {"web", "db"}
    assert set(mooring("ps", "-o", "name").stdout.split()) == {"web", "db"}
    assert mooring("ps", "-o", "csv").stdout.startswith("name,kind,status,")


def test_columns_option_selects_and_orders_columns_of_any_list(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", labels={"app": "web"})
    assert mooring("ps", "--columns", "labels,NAME").stdout.split() == ["LABELS", "NAME", "app=web", "web"]
    assert mooring("nodes", "--columns", "cpu-free,name").stdout.splitlines()[0].split() == ["CPU", "FREE", "NAME"]
    assert mooring("ps", "-o", "csv", "--columns", "name").stdout.split() == ["name", "web"]
    wrong = mooring("ps", "--columns", "nmae")
    assert wrong.exit_code == 2
    assert "there is no column 'nmae'; there are: name, " in wrong.stderr
    assert mooring("ps", "-o", "json", "--columns", "name").exit_code == 2


def test_ps_selects_by_labels(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", labels={"app": "web", "tier": "front"})
    server.add("db", labels={"app": "db"})

    def names(selector: str, *more: str) -> set[str]:
        return set(mooring("ps", "-o", "name", "-l", selector, *more).stdout.split())

    assert names("app=web") == names("tier") == names("app!=db") == {"web"}
    assert names("!tier") == {"db"}
    assert names("app=web,tier=back") == set()
    assert len(names("app", "--limit", "1")) == 1
    assert mooring("ps", "-l", "app=a b").exit_code == 2


def test_ps_hides_ended_workloads_unless_asked(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    server.add("done", status="SUCCEEDED")
    assert mooring("ps", "-o", "name").stdout.split() == ["web"]
    assert set(mooring("ps", "--all", "-o", "name").stdout.split()) == {"web", "done"}
    with run_on_terminal("ps") as terminal:
        terminal.expect("1 workload ended; --all includes them")
        assert terminal.exit_code() == 0
    assert "ended;" not in mooring("ps").stdout


def test_watch_needs_a_terminal(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("ps", "--watch")
    assert result.exit_code == 2
    assert "terminal" in result.stderr
