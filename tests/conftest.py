"""What every test may ask for: real servers (`tests/servers.py`), migrated databases (`tests/store/databases.py`) and
external data (`tests/external.py`). What they share to be quick is in `tests/economy.py`."""

pytest_plugins = ["tests.economy", "tests.servers", "tests.external", "tests.store.databases"]
