"""What every test may ask for: real servers (`tests/servers.py`), a container engine (`tests/engine.py`), migrated
databases (`tests/store/databases.py`) and external data (`tests/external.py`). What they share to be quick is in
`tests/economy.py`."""

pytest_plugins = ["tests.economy", "tests.servers", "tests.engine", "tests.external", "tests.store.databases"]
