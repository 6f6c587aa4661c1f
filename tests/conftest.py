"""What every test may ask for: real servers (`tests/servers.py`), a container engine (`tests/engine.py`), migrated
databases (`tests/store/databases.py`) and external data (`tests/external.py`). What they share to be quick is in
`tests/economy.py`."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.economy", "tests.servers", "tests.engine", "tests.external", "tests.store.databases"]

# How long an example takes says how busy the machine is, and nothing of what the example shows.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
