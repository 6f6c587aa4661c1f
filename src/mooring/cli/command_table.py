"""The commands by name: where each is defined, and its line in `mooring --help`.

Help, completion and suggestions read this table instead of importing every command. A test compares it with the
commands themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

WORK = "Work"
CLUSTER = "Cluster"
ACCOUNT = "Account"
TENANTS = "Tenants"
SERVER = "Server"

_PACKAGE = "mooring.cli.commands"


class Entry(NamedTuple):
    """A command of the top level. Hidden ones have no panel."""

    panel: str | None
    module: str
    description: str
    extensions: tuple[str, ...] = ()
    """Modules that add commands to the group."""


ENTRIES = {
    "deploy": Entry(
        WORK,
        "workloads.deploy",
        "Deploy replicas of a container, or of a command that runs as a process, and keep them running.",
    ),
    "apply": Entry(
        WORK, "workloads.files", "Create the workloads of a file that are missing, and change those that differ."
    ),
    "diff": Entry(WORK, "workloads.files", "Show the changes that `mooring apply` would make."),
    "delete": Entry(WORK, "workloads.files", "Stop the workloads of a file and remove them from lists."),
    "schema": Entry(
        WORK,
        "workloads.files",
        "Print the JSON Schema of workload files, for editors: `mooring schema > mooring.schema.json`.",
    ),
    "submit": Entry(
        WORK, "workloads.submit", "Submit a job script and print its name, or submit many workloads from a file."
    ),
    "run": Entry(
        WORK, "workloads.run", "Run a command on the cluster, stream its output, and exit with its exit code."
    ),
    "shell": Entry(
        WORK,
        "workloads.shell",
        "Open a login shell in a new session, which ends when the shell exits or your terminal is closed.",
    ),
    "session": Entry(WORK, "workloads.sessions", "Manage sessions: interactive, batch, inference and system."),
    "book": Entry(
        WORK,
        "cluster.bookings",
        "Reserve capacity for a time window and wait for the decision: nodes, or alternatives that would fit.",
    ),
    "maintenance": Entry(
        CLUSTER,
        "cluster.bookings",
        "Reserve nodes for maintenance: no work starts there that would overlap the window.",
    ),
    "bookings": Entry(WORK, "cluster.bookings", "List, show, change, cancel and export bookings."),
    "lab": Entry(WORK, "workloads.labs", "Manage labs: workloads with reserved capacity in a time window."),
    "wait": Entry(WORK, "workloads.wait", "Wait until all workloads have ended."),
    "ps": Entry(WORK, "workloads.ps", "List your workloads that have not ended."),
    "status": Entry(WORK, "workloads.ps", "Show a workload: the nodes of its tasks, and why it is pending or failed."),
    "explain": Entry(
        WORK,
        "workloads.explain",
        "Show why a workload is pending: the reasons that exclude nodes, and the scores of the remaining ones.",
    ),
    "top": Entry(WORK, "tasks.top", "Show the resource usage of running tasks, highest first, until Ctrl-C."),
    "logs": Entry(WORK, "tasks.logs", "Show the output of a task, or follow the output of all tasks of a workload."),
    "exec": Entry(WORK, "tasks.exec", "Run an additional command in a running task: `mooring exec web -it sh`."),
    "attach": Entry(WORK, "tasks.exec", "Connect to the standard input and output of a container or process."),
    "cp": Entry(
        WORK,
        "tasks.cp",
        "Copy files from or to a task: `mooring cp web:/srv/data .`, `mooring cp notes.txt web:/srv`.",
    ),
    "forward": Entry(
        WORK,
        "tasks.forward",
        "Forward a local port to a port of a workload until Ctrl-C: `mooring forward notebook 8888`.",
    ),
    "history": Entry(
        WORK, "workloads.history", "Show the status changes and failed attempts of a workload, oldest first."
    ),
    "scale": Entry(WORK, "workloads.workloads", "Change the number of replicas of a deployment."),
    "extend": Entry(WORK, "workloads.workloads", "Extend the time limit of a session, even while it runs."),
    "cancel": Entry(WORK, "workloads.workloads", "Cancel workloads by name, or all that match the options."),
    "rm": Entry(WORK, "workloads.workloads", "Stop workloads and remove them from lists."),
    "update": Entry(WORK, "workloads.rollouts", "Change the command, image or resources of a deployment."),
    "endpoints": Entry(
        WORK,
        "workloads.rollouts",
        "List the endpoints of a workload: its tasks that run, are ready and are not being stopped.",
    ),
    "rollout": Entry(WORK, "workloads.rollouts", "Show, pause, resume and undo rollouts of deployments."),
    "upload": Entry(WORK, "workloads.volumes", "Manage uploaded folders (`mooring run --upload`)."),
    "volume": Entry(WORK, "workloads.volumes", "Manage volumes: folders of a project that outlive its tasks."),
    "drain": Entry(CLUSTER, "cluster.nodes", "Drain a node: place no new tasks on it, and move or finish its tasks."),
    "resume": Entry(CLUSTER, "cluster.nodes", "Resume a drained node, or one that Mooring avoids after failures."),
    "nodes": Entry(CLUSTER, "cluster.nodes", "List nodes, or add, remove, show or change one."),
    "node": Entry(None, "cluster.nodes", "List nodes, or add, remove, show or change one."),
    "quarantine": Entry(
        CLUSTER,
        "cluster.quarantine",
        "List or stop tasks that run on nodes but are not in the database, for example after a restore.",
    ),
    "pools": Entry(None, "cluster.pools", "List the pools."),
    "pool": Entry(
        CLUSTER,
        "cluster.pools",
        "Create, list, show, change and remove pools.",
        ("cluster.pool_access", "cluster.scaling"),
    ),
    "scaling": Entry(
        CLUSTER, "cluster.scaling", "Show requested nodes, work that no template fits, and nodes that may be removed."
    ),
    "defrag": Entry(
        CLUSTER, "cluster.defragmentation", "Plan and apply moves of running tasks that make capacity usable."
    ),
    "free": Entry(
        CLUSTER,
        "cluster.free",
        "Show free capacity by pool, and the largest request of one task that would start now within your quotas.",
    ),
    "timeline": Entry(CLUSTER, "cluster.timeline", "Draw running, booked, planned and free capacity over time."),
    "what-if": Entry(
        CLUSTER,
        "operations.what_if",
        "Simulate a change of the live cluster, and show when pending work would start with and without it.",
    ),
    "usage": Entry(
        CLUSTER,
        "tenancy.usage",
        "Show usage in slot hours: cores, devices and gigabytes times hours, as allocated and as measured.",
    ),
    "occupancy": Entry(
        CLUSTER,
        "tenancy.shares",
        "Show the resources that keypairs, users, projects, domains and nodes occupy, from one snapshot.",
    ),
    "shares": Entry(CLUSTER, "tenancy.shares", "Show fair-share weights and ranks of tenants, or set weights."),
    "events": Entry(WORK, "cluster.events", "Show events, each with its cursor."),
    "token": Entry(CLUSTER, "cluster.tokens", "Create join tokens for machines; list and revoke logins."),
    "login": Entry(ACCOUNT, "tenancy.account", "Log in."),
    "logout": Entry(ACCOUNT, "tenancy.account", "End the stored login, and remove it from this machine."),
    "console": Entry(ACCOUNT, "operations.console", "Open the web console in a browser, logged in as you."),
    "passwd": Entry(ACCOUNT, "tenancy.account", "Change your password."),
    "whoami": Entry(ACCOUNT, "tenancy.account", "Show the user that you are logged in as."),
    "quota": Entry(ACCOUNT, "tenancy.quota", "Show quotas and their usage, or change those of tenants."),
    "domain": Entry(TENANTS, "tenancy.domains", "Manage domains, which contain projects and users."),
    "project": Entry(TENANTS, "tenancy.projects", "Manage projects and their members."),
    "secret": Entry(TENANTS, "tenancy.secrets", "Manage secrets of a project, which its tasks read as files."),
    "registry": Entry(TENANTS, "tenancy.secrets", "Manage a project's logins to image registries."),
    "user": Entry(TENANTS, "tenancy.users", "Manage users of the server; for administrators."),
    "keypair": Entry(TENANTS, "tenancy.keypairs", "Manage keypairs: access keys and secrets for programs."),
    "policy": Entry(TENANTS, "tenancy.policies", "Manage policies: limits and rights of tenants."),
    "actions": Entry(TENANTS, "tenancy.actions", "Show administrative actions, newest first."),
    "up": Entry(SERVER, "operations.serve", "Start a server: the API, the scheduler, and an agent for this machine."),
    "agent": Entry(
        SERVER, "operations.serve", "Start an agent, which runs the tasks that a server places on this machine."
    ),
    "config": Entry(SERVER, "operations.serve", "Show every setting of a server with its value and its source."),
    "keys": Entry(SERVER, "operations.serve", "Manage signing keys of login tokens."),
    "db": Entry(SERVER, "operations.database", "Check, upgrade, copy, back up and restore the database of a server."),
    "servers": Entry(
        SERVER, "operations.leadership", "Show the servers: the leader, the standbys, and those that stopped reporting."
    ),
    "loops": Entry(
        SERVER,
        "operations.leadership",
        "Show the leader's control loops, the background tasks of servers, and failed ones of agents.",
    ),
    "leader": Entry(SERVER, "operations.leadership", "Show the leader; make it resign or run a scheduling pass."),
    "audit": Entry(SERVER, "operations.audit", "Check that the records of tasks, workloads, nodes and tenants agree."),
    "simulate": Entry(
        SERVER,
        "operations.simulate",
        "Replay workloads through the scheduler with a virtual clock, and show waits, utilisation and fairness.",
    ),
    "version": Entry(
        SERVER, "operations.audit", "Show the version of this command, and that of the server if it is reachable."
    ),
}


class LazyCommands(MutableMapping[str, Any]):
    """The commands of the table, each built when it is read."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            entry = ENTRIES[name]
            for extension in entry.extensions:
                import_module(f"{_PACKAGE}.{extension}")
            self._built[name] = commands_of(entry.module)[name]
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __contains__(self, name: object) -> bool:
        return name in ENTRIES

    def __len__(self) -> int:
        return len(ENTRIES)


def commands_of(module: str) -> dict[str, Any]:
    """Return the commands that a module defines."""
    from typer.main import get_group

    return dict(get_group(import_module(f"{_PACKAGE}.{module}").app).commands)
