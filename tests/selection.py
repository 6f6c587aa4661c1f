"""The difference between `make test` and `make test-all`.

`make test` leaves out tests marked `slow`, PostgreSQL variants of layers above the store, and most of the examples of
the long property tests. `make test-all` runs everything except tests marked `soak`.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_TESTS = Path(__file__).parent
_LONGEST = [_TESTS / name for name in ("fault_schedules", "system", "properties", "scheduling", "store")]
# These packages contain no SQL: SQLite shows their rules, and the store's own tests show that the databases agree.
_ABOVE_THE_STORE = [_TESTS / name for name in ("api", "controllers", "mirror", "security", "services")]
_FULL = "full"
_REDUCTION = 5
_FEWEST = 2

# An example's duration depends on the load of the machine, so there is no deadline.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("reduced", _patient)
settings.register_profile(_FULL, _patient)
settings.load_profile("reduced")


def examples(number: int) -> int:
    """Return the number of examples for a long property test: `number` in `make test-all`, a fifth in `make test`.

    The rounds of a race are examples too.
    """
    return number if settings.get_current_profile_name() == _FULL else max(_FEWEST, number // _REDUCTION)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_variant_above_the_store(item):
            item.add_marker(pytest.mark.slow)
    # The longest first, so that no worker is left alone with a long file at the end.
    items.sort(key=lambda item: next((at for at, folder in enumerate(_LONGEST) if _is_in(item, folder)), len(_LONGEST)))


def _is_variant_above_the_store(item: pytest.Item) -> bool:
    """Return whether the test also runs on SQLite and belongs to a package without SQL."""
    if not any(_is_in(item, folder) for folder in _ABOVE_THE_STORE):
        return False
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec else {}
    chosen = {name for name in ("migrated_url", "database_url") if parameters.get(name) == "postgresql"}
    # A test that names its databases itself depends on them.
    named = {mark.args[0] for mark in item.iter_markers("parametrize") if mark.args}
    return bool(chosen - named)


def _is_in(item: pytest.Item, folder: Path) -> bool:
    return folder in item.path.parents
