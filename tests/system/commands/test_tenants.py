"""Tenants on the command line of a real server: as admin, as domain admin, and with a keypair."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from mooring.cli.app import app
from tests.system.conftest import Servers
from tests.system.servers import PASSWORD


@dataclass
class Person:
    """One who types commands, with logins and an environment of their own."""

    server: str
    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, typed: str | None = None) -> Result:
        environment = {"MOORING_SERVER": self.server, "XDG_CONFIG_HOME": str(self.home), **self.environment}
        return CliRunner(env=environment).invoke(app, list(words), input=typed, prog_name="mooring")

    def out(self, *words: str, typed: str | None = None) -> str:
        done = self(*words, typed=typed)
        assert done.exit_code == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.out(*words, "-o", "json"))

    def login(self, name: str, password: str) -> Person:
        self.out("login", "--username", name, "--password-stdin", typed=f"{password}\n")
        return self


def test_a_domain_admin_manages_the_domain_within_its_limits(servers: Servers) -> None:
    server = servers.start("--no-agent", "--simulate", "2")
    admin = Person(server.url, servers.folder / "admin").login("admin", PASSWORD)
    admin.out("domain", "create", "research")
    admin.out("project", "create", "vision", "--domain", "research")
    lead_password = admin.json("user", "create", "lead", "--domain", "research", "--role", "domain-admin")["password"]
    policy = admin.json("policy", "create", "small", "--limit", "cpu=4", "--rule", "max_sessions=10")
    assert policy["rules"] == {"limits": {"cpu": "4"}, "max_sessions": 10}
    unknown = admin("policy", "create", "wrong", "--rule", "max_cpus=4")
    assert (unknown.exit_code, "it knows: limits" in unknown.stderr) == (2, True)
    admin.out("project", "change", "vision", "--domain", "research", "--policy", "small")

    lead = Person(server.url, servers.folder / "lead").login("lead", lead_password)
    ben_password = lead.json("user", "create", "ben", "--project", "vision")["password"]
    lead.out("project", "create", "speech")
    assert "project-admin" in lead.out("project", "add-member", "speech", "ben", "--role", "project-admin")
    assert [user["username"] for user in lead.json("user", "list")] == ["ben", "lead"]
    assert [(one["name"], one["policy"]) for one in lead.json("project", "list")] == [
        ("default", None), ("speech", None), ("vision", "small")]  # fmt: skip
    assert "you may not change domains" in lead("domain", "create", "other").stderr
    assert lead("domain", "show", "default").exit_code == 3

    ben = Person(server.url, servers.folder / "ben").login("ben", ben_password)
    ben.out("deploy", "web", "--image", "nginx", "--project", "speech", "--no-wait")
    key = ben.json("keypair", "create", "--project", "speech", "--name", "ci", "--scope", "work", "--days", "90")
    program = Person(
        server.url,
        servers.folder / "program",
        {"MOORING_ACCESS_KEY": key["access_key"], "MOORING_SECRET_KEY": key["secret"]},
    )
    assert [workload["name"] for workload in program.json("ps")["workloads"]] == ["web"]
    assert "has the scope 'work'" in program("keypair", "create").stderr
    stored = Person(server.url, servers.folder / "kept")
    stored.out("login", "--keypair", key["access_key"], "--password-stdin", typed=f"{key['secret']}\n")
    stored.out("rm", "web", "--yes")
    assert program.json("ps")["workloads"] == []
    assert [one["name"] for one in ben.json("keypair", "list") if one["last_used_at"]] == ["ci"]
    ben.out("keypair", "change", key["access_key"], "--inactive")
    assert program("ps").exit_code == 4

    admin.out("policy", "change", "small", "--limit", "cpu=8")
    assert admin.json("policy", "revert", "small")["rules"]["limits"] == {"cpu": "4"}
    admin.out("pool", "access", "add", "default", "--project", "vision", "--domain", "research")
    assert "research/vision" in admin.out("pool", "access", "list", "default")
    admin.out("pool", "access", "remove", "default", "--project", "vision", "--domain", "research")
    received = admin.out("actions", "--noun", "policy", "-o", "wide")
    assert "rules: limits cpu 8, max_sessions 10 -> limits cpu 4, max_sessions 10" in received
    everything = json.dumps(admin.json("actions", "--limit", "1000"))
    for secret in (key["secret"], ben_password, lead_password):
        assert secret not in everything
        assert secret not in server.log
