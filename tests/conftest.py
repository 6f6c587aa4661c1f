"""What every test may ask for: real servers (`tests/servers.py`) and external data (`tests/external.py`)."""

pytest_plugins = ["tests.servers", "tests.external"]
