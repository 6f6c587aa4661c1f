"""What every test may ask for: real servers (`tests/servers.py`), migrated databases (`tests/store/databases.py`) and
external data (`tests/external.py`)."""

pytest_plugins = ["tests.servers", "tests.external", "tests.store.databases"]
