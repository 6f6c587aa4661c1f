"""Fixtures for all tests: real servers (`tests/servers.py`), a container engine (`tests/engine.py`), migrated databases
(`tests/store/databases.py`), other schedulers (`tests/peers/`) and external data (`tests/external.py`).

`tests/selection.py` separates `make test` from `make test-all`, `tests/speedups.py` holds shared caches, and
`tests/stray_files.py` fails a run that leaves files in the source tree.
"""

pytest_plugins = [
    "tests.selection",
    "tests.speedups",
    "tests.servers",
    "tests.engine",
    "tests.external",
    "tests.peers.kubernetes",
    "tests.peers.slurm",
    "tests.store.databases",
    "tests.stray_files",
]
