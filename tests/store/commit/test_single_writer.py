"""Only `store.commit` writes the ledger and the status of a task; imports cannot express this rule."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mooring

SOURCE = Path(mooring.__file__).parent
COMMIT = SOURCE / "store" / "commit"
MIGRATIONS = SOURCE / "store" / "core" / "migrations"

# Writes outside `store.commit` that are part of the design.
PURGING = "store/accounting/purging.py"
"""Deletes the rows of tasks that ended long ago and are settled: they count nowhere."""
REPAIR = "store/audit/corrections.py"
"""Corrects cells of any table; `store.audit.repair` calls it under the locks that a commit takes."""
DATABASE_COPY = "store/core/database_copy.py"
"""Copies all rows of all tables into an empty database."""
INSERTS = "store/core/inserts.py"
"""Inserts rows on behalf of its caller, which counts as the writer."""
SEALED_ROWS = "store/tenancy/sealed_rows.py"
"""Writes the tables of secrets and registry logins."""

OPERATIONS = {name: name for name in ("insert", "update", "delete")}
OPERATIONS |= {"insert_new": "insert", "insert_or_replace": "insert"}
SQL_WRITE = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)", re.IGNORECASE)
ANY = "any table"


class Write(NamedTuple):
    module: str
    operation: str
    table: str
    sets_status: bool


def test_only_commits_purging_and_repairs_write_the_ledger():
    found = {(write.module, write.operation) for write in writes() if write.table == "resource_allocations"}
    assert found == {(PURGING, "delete")}


def test_only_commits_set_the_status_of_a_task():
    found = [
        write for write in writes() if write.table == "tasks" and (write.sets_status or write.operation != "update")
    ]
    assert {(write.module, write.operation) for write in found} == {(PURGING, "delete")}


def test_writes_of_tables_that_are_passed_as_arguments_are_known():
    found = {write.module for write in writes() if write.table == ANY}
    assert found == {REPAIR, DATABASE_COPY, INSERTS, SEALED_ROWS}


def test_the_search_finds_the_writes_of_commits():
    found = writes(COMMIT)
    assert {write.operation for write in found if write.table == "resource_allocations"} == {"insert", "update"}
    assert {write.operation for write in found if write.table == "tasks" and write.sets_status} == {"insert", "update"}


@cache
def writes(folder: Path = SOURCE) -> list[Write]:
    """Return each write in the modules of a folder, those of commits and migrations only if they are asked for."""
    found: list[Write] = []
    for file in sorted(folder.rglob("*.py")):
        if folder is SOURCE and (COMMIT in file.parents or MIGRATIONS in file.parents):
            continue
        tree = ast.parse(file.read_text())
        module = str(file.relative_to(SOURCE))
        found += _sql_writes(module, tree)
        if "sqlalchemy" in file.read_text() or "batch_sql" in file.read_text():
            found += _expression_writes(module, tree)
    return found


def _sql_writes(module: str, tree: ast.Module) -> Iterator[Write]:
    """Yield statements that are written as text, and the `Update` of `batch_sql`, whose table is its first argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Update":
            table = str(ast.literal_eval(node.args[0])).split()[0]
            yield Write(module, "update", table, "status =" in ast.unparse(node))
        elif text := _text(node):
            for match in SQL_WRITE.finditer(text):
                operation = match[1].split()[0].lower()
                sets_status = re.search(r"\bstatus\s*=", text[match.end() :].partition("WHERE")[0]) is not None
                yield Write(module, operation, match[2].lower(), sets_status)


def _text(node: ast.AST) -> str | None:
    """Return the text of a string or an f-string, with `?` for each expression in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _expression_writes(module: str, tree: ast.Module) -> Iterator[Write]:
    """Yield calls of `insert`, `update` and `delete`, of SQLAlchemy or `batch_sql`, in functions and outside."""
    tables = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mooring.store.tables")
        for alias in node.names
        if alias.name != "metadata"
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    rest = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    for scope in [*functions, *rest]:
        for call in ast.walk(scope):
            operation = _operation(call)
            if operation is None or not isinstance(call, ast.Call) or not call.args:
                continue
            names = [arg.id for arg in call.args if isinstance(arg, ast.Name) and arg.id in tables]
            # A table in a variable may be each one that the scope names.
            named = names or [n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id in tables] or [ANY]
            statement = ast.unparse(scope)
            sets_status = re.search(r"values\([^)]*\bstatus\s*=|['\"]status['\"]:", statement) is not None
            for name in dict.fromkeys(named):
                yield Write(module, operation, tables.get(name, ANY), sets_status)


def _operation(call: ast.AST) -> str | None:
    """Return the operation of a call such as `update(…)` or `batch_sql.insert(…)`."""
    if not isinstance(call, ast.Call):
        return None
    if isinstance(call.func, ast.Attribute):
        own = isinstance(call.func.value, ast.Name) and call.func.value.id == "batch_sql"
        return OPERATIONS.get(call.func.attr) if own else None
    return OPERATIONS.get(call.func.id) if isinstance(call.func, ast.Name) else None
