"""The documentation: generated pages are current, links lead somewhere, every page is in the navigation."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from fastapi.routing import APIRoute

from mooring.api.app import create_app
from mooring.api.services import Services
from mooring.cli.app import app
from mooring.store.tables import metadata
from scripts import generate_reference

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/*.md")])
CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t).*?$|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "text"), list(generate_reference.pages()), ids=lambda part: getattr(part, "name", "text")
)
def test_generated_reference_is_current(path: Path, text: str):
    assert path.read_text() == text, f"{path.name} is stale; run `make reference`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(document: Path):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", document.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and anchor not in headings(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_options_in_the_text_exist(document: Path):
    wrong = [command for command in commands(document.read_text()) if not is_known(command)]
    assert wrong == []


def test_api_page_lists_every_route():
    text = (DOCS / "reference" / "http-api.md").read_text()
    listed = {
        (method, path)
        for methods, path in re.findall(r"`((?:(?:GET|POST|PUT|PATCH|DELETE) )+)(/[^`? ]+)`", text)
        for method in methods.split()
    }
    api = create_app(cast(Services, SimpleNamespace(version="0", trusted_proxies=())))
    served = {(method.upper(), path) for path, methods in api.openapi()["paths"].items() for method in methods}
    assert listed == served | {("POST", "/api/agent/join")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_named_in_the_text_exist(document: Path):
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", document.read_text())
    roots = (ROOT, ROOT / "src", ROOT / "src" / "mooring")
    assert [path for path in named if not any((root / path).is_file() for root in roots)] == []


def test_api_limits_list_every_expensive_request():
    text = (DOCS / "reference" / "api-limits.md").read_text()
    (row,) = (line for line in text.splitlines() if line.startswith("| `question_rate`"))
    named = re.findall(r"`(?:[A-Z]+ )?(/api/[^`]+)`", row)
    of_workloads = {"dry-run": "dry runs", "explanation": "explanations", "comparison": "comparisons"}
    api = create_app(cast(Services, SimpleNamespace(version="0", trusted_proxies=())))
    routes = [route for route in api.routes if isinstance(route, APIRoute)]
    expensive = {route.path for route in routes if "rates.query(" in inspect.getsource(route.endpoint)}
    unnamed = {path for path in expensive if not any(path.startswith(each) for each in named)}
    assert {of_workloads[path.rpartition("/")[2]] for path in unnamed} == set(of_workloads.values())
    assert [each for each in named if not any(path.startswith(each) for path in expensive)] == []
    assert [words for words in of_workloads.values() if words not in row] == []


def test_every_control_loop_is_described():
    source = (ROOT / "src/mooring/controllers/leadership/controller_manager.py").read_text()
    loops = set(re.findall(r'self\._start\(\s*group, "(\w+)"', source))
    text = (DOCS / "how-to" / "monitor.md").read_text()
    table = text.partition("| loop | purpose |")[2].partition("\n\n")[0]
    described = {name for names in re.findall(r"^\| ([\w, ]+) \|", table, re.MULTILINE) for name in names.split(", ")}
    assert described == loops


def test_every_metric_in_the_text_exists():
    sources = [*(ROOT / "src/mooring/telemetry").glob("*.py"), *(ROOT / "src/mooring").rglob("*metrics*.py")]
    known = {name for path in sources for name in re.findall(r'"(mooring_[a-z_]+)"', path.read_text())}
    named = {name for each in DOCUMENTS for name in re.findall(r"`(mooring_[a-z_]+)`", each.read_text())}
    assert named - known == set()


def test_every_table_is_described():
    tables = (DOCS / "architecture.md").read_text().partition("## Tables")[2]
    described = {
        name
        for line in tables.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert described == set(metadata.tables)


def test_every_page_is_in_the_navigation():
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(leaves(site["nav"])) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def commands(text: str) -> Iterator[str]:
    """Yield the `mooring` commands of indented blocks, without comments and what is piped to, and of inline code."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if block := re.match(r"(?: {4}|\t)+(?:\$ )?(?:[A-Z_]+=\S+ )*(mooring .*)", line):
            yield re.split(r"\s+#\s|;\s|\s\|\s|\s&&\s|\s>\s", block[1])[0]
        else:
            yield from re.findall(r"`(mooring [^`]*)`", line)


@cache
def root_command() -> Any:
    return typer.main.get_command(app)


def is_known(command: str) -> bool:
    """Tell whether the command exists and takes the long options that are given before `--`."""
    known = root_command()
    words = re.sub(r'"[^"]*"', "TEXT", command).split()[1:]
    if words and re.fullmatch(r"[a-z]+", words[0]) and words[0] not in known.commands:
        return False
    while words and words[0] in getattr(known, "commands", ()):
        known = known.commands[words.pop(0)]
    taken = {name for parameter in known.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    given = words[: words.index("--")] if "--" in words else words
    options = {word.partition("=")[0].rstrip(",.:") for word in given if re.match(r"--[a-z]", word)}
    return options <= taken


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, spelled as the site and code hosts spell them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def leaves(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for entry in nav:
                yield from leaves(entry)
        case dict():
            yield from leaves(list(nav.values()))
