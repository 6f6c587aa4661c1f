"""Settings: where a value comes from, what wins, and that a wrong name is never silent."""

from pathlib import Path
from typing import Any

import pytest

from mooring.model.errors import InvalidInput
from mooring.settings import SECRETS, Settings, describe, load


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "mooring.toml"


def test_flags_win_over_the_file_and_the_file_over_the_environment(config: Path):
    environment = {"MOORING_PORT": "1", "MOORING_HOST": "env", "MOORING_NODE_NAME": "env"}
    config.write_text('port = 2\nhost = "file"\n')
    loaded = load({"port": 3, "host": None}, config, environment)
    assert (loaded.settings.port, loaded.settings.host, loaded.settings.node_name) == (3, "file", "env")
    assert loaded.origins["port"] == "flag"
    assert loaded.origins["host"] == f"file {config}"
    assert loaded.origins["node_name"] == "environment MOORING_NODE_NAME"
    assert loaded.origins["simulate"] == "default"


def test_a_flag_that_is_off_still_wins(config: Path):
    config.write_text("agent = true\nsimulate = 5\n")
    loaded = load({"agent": False, "simulate": 0}, config, {})
    assert (loaded.settings.agent, loaded.settings.simulate) == (False, 0)


def test_the_environment_may_name_the_file(config: Path):
    config.write_text("port = 2\n")
    assert load(environment={"MOORING_CONFIG": str(config)}).settings.port == 2


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ({"environment": {"MOORING_PROT": "1"}}, "environment MOORING_PROT"),
        ({"flags": {"prot": 1}, "environment": {}}, "flag"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_its_source(given: dict[str, Any], origin: str):
    with pytest.raises(InvalidInput, match="prot") as refused:
        load(**given)
    assert refused.value.code == "unknown-setting"
    assert origin in refused.value.message


def test_an_unknown_name_in_the_file_is_an_error_that_names_the_file(config: Path):
    config.write_text("prot = 1\n")
    with pytest.raises(InvalidInput) as refused:
        load(config_file=config, environment={})
    assert refused.value.code == "unknown-setting"
    assert str(config) in refused.value.message


@pytest.mark.parametrize(
    "url", ["https://ann:secret@control.example", "control.example", "ftp://control.example", "http://"]
)
def test_a_public_address_that_clients_cannot_be_sent_to_is_refused(url: str):
    with pytest.raises(InvalidInput, match="public_url") as refused:
        load({"public_url": url}, environment={})
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    "variables",
    [
        ("PATH", "MOORING_SERVER", "MOORING_TOKEN", "MOORING_ACCESS_KEY", "MOORING_SECRET_KEY"),
        ("MOORING_NODE", "MOORING_PROJECT", "MOORING_DEBUG"),
        ("MOORING_TASK_ID", "MOORING_ATTEMPT", "MOORING_DEVICES", "MOORING_DEVICE_SHARES", "MOORING_PORTS"),
        ("MOORING_TASK_ROLE", "MOORING_CLUSTER_SIZE", "MOORING_ARRAY_INDEX", "MOORING_ARRAY_COUNT"),
        ("MOORING_PEERS", "MOORING_PEER_ADDRESSES", "MOORING_PEER_PORTS"),
    ],
    ids=["of the client", "of its place", "of a task", "of a session", "of its peers"],
)
def test_a_variable_of_another_program_is_no_setting(variables: tuple[str, ...]):
    load(environment=dict.fromkeys(variables, "x"))


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("RECONCILE_INTERVAL", "12.5", "reconcile_interval", 12.5),
        ("ETCD_HOST", "etcd", "etcd_host", "etcd"),
        ("ETCD_PORT", "2380", "etcd_port", 2380),
        ("CONTROL_PLANE_API_URL", "http://x", "control_plane_api_url", "http://x"),
        ("SCHEDULER_INSTANCE_ID", "s1", "scheduler_instance_id", "s1"),
        ("LEADER_LEASE_TTL", "20", "leader_lease_ttl", 20),
    ],
)
def test_names_from_other_systems_are_accepted(variable: str, value: str, name: str, expected: object):
    loaded = load(environment={variable: value})
    assert getattr(loaded.settings, name) == expected
    assert loaded.origins[name] == f"environment {variable}"


def test_mooring_names_win_over_names_from_other_systems():
    loaded = load(environment={"MOORING_RECONCILE_INTERVAL": "1", "RECONCILE_INTERVAL": "2"})
    assert loaded.settings.reconcile_interval == 1
    assert loaded.origins["reconcile_interval"] == "environment MOORING_RECONCILE_INTERVAL"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("PORT", "many"),
        ("ROLE", "boss"),
        ("RECONCILE_INTERVAL", "0"),
        ("TOKEN_SECONDS", "1"),
        ("SIMULATE", "-1"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_source(name: str, value: str):
    with pytest.raises(InvalidInput) as refused:
        load(environment={f"MOORING_{name}": value})
    assert refused.value.code == "invalid-setting"
    assert f"environment MOORING_{name}" in refused.value.message


def test_a_wrong_secret_is_not_repeated_in_the_error(config: Path):
    config.write_text('admin_password = ["hunter2"]\n')
    with pytest.raises(InvalidInput) as refused:
        load(config_file=config, environment={})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("content", [None, "port = ", "\x00"])
def test_a_file_that_cannot_be_read_is_an_error(config: Path, content: str | None):
    if content is not None:
        config.write_text(content)
    with pytest.raises(InvalidInput, match="cannot read the settings file"):
        load(config_file=config, environment={})


def test_every_setting_is_described_and_no_secret_is_shown():
    secrets = {
        "MOORING_ADMIN_PASSWORD": "hunter2",
        "MOORING_SIGNING_KEY": "hunter3",
        "MOORING_DATABASE": "postgresql://mooring:hunter4@db/mooring",
    }
    loaded = load(environment=secrets)
    rows = {name: (value, origin, meaning) for name, value, origin, meaning in describe(loaded)}
    assert set(rows) == set(Settings.model_fields)
    assert all(meaning for _, _, meaning in rows.values())
    assert "hunter" not in str(rows)
    assert "hunter" not in repr(loaded.settings.admin_password)
    assert rows["admin_password"][0] == "(set, not shown)"
    assert rows["database"][0] == "postgresql://mooring:***@db/mooring"
    assert rows["signing_key"][1] == "environment MOORING_SIGNING_KEY"


def test_without_a_database_the_data_folder_has_one(tmp_path: Path):
    assert (
        load({"data": tmp_path}, environment={}).settings.database_url == f"sqlite+aiosqlite:///{tmp_path}/mooring.db"
    )
    given = load({"database": "postgresql://db/m"}, environment={}).settings
    assert given.database_url == "postgresql://db/m"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.1.2.3", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_known(host: str, loopback: bool):
    assert load({"host": host}, environment={}).settings.loopback is loopback


@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_can_come_from_a_file(name: str, tmp_path: Path):
    (tmp_path / "secret").write_text("s3cret\n")
    loaded = load(environment={f"MOORING_{name.upper()}_FILE": str(tmp_path / "secret")})
    value = getattr(loaded.settings, name)
    assert (value if isinstance(value, str) else value.get_secret_value()) == "s3cret"
