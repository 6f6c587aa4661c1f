"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mooring.cli.command_table import ACCOUNT as ACCOUNT
from mooring.cli.command_table import CLUSTER as CLUSTER
from mooring.cli.command_table import SERVER as SERVER
from mooring.cli.command_table import TENANTS as TENANTS
from mooring.cli.command_table import WORK as WORK
from mooring.cli.input.completion import complete_nodes, complete_workloads
from mooring.cli.rendering.output import OutputOption as OutputOption


class PullChoice(StrEnum):
    ALWAYS = "always"
    IF_NOT_PRESENT = "if-not-present"
    NEVER = "never"


class OnInsufficientChoice(StrEnum):
    WAIT = "wait"
    FAIL = "fail"
    SCALE_UP = "scale-up"


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="URL",
        help="URL of the server (default: MOORING_SERVER, the last login, or the server of this machine).",
    ),
]
WorkloadArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The workload's name or id.", autocompletion=complete_workloads)
]
ContainerOption = Annotated[
    str | None, typer.Option("--container", "-c", metavar="NAME", help="Container (default: the first).")
]
TaskOption = Annotated[
    int | None, typer.Option("--task", metavar="N", min=0, help="Index of the task (default: any running task).")
]
WorkloadsArgument = Annotated[
    list[str], typer.Argument(metavar="NAME", help="Names or ids of workloads.", autocompletion=complete_workloads)
]
NodeLicenceOption = Annotated[str | None, typer.Option("--licence", metavar="LICENCE", help="Licence of the machine.")]
NodeImageOption = Annotated[
    str | None, typer.Option("--machine-image", metavar="NAME", help="Image that the machine was created from.")
]
NodeImageVersionOption = Annotated[
    str | None, typer.Option("--machine-image-version", metavar="VERSION", help="Version of the machine image.")
]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.", autocompletion=complete_nodes)]

CpuOption = Annotated[str | None, typer.Option(metavar="CORES", help="CPU cores: 2, 0.5 or 500m.")]
MemoryOption = Annotated[str | None, typer.Option(metavar="BYTES", help="Memory: 512Mi, 2Gi.")]
GpuOption = Annotated[str | None, typer.Option(metavar="DEVICES", help="GPUs: 1, or 0.5 for half of one.")]
GpuModelOption = Annotated[
    list[str] | None,
    typer.Option("--gpu-model", metavar="MODEL", help="Allowed GPU model; repeatable."),
]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-memory", metavar="BYTES", help="Minimum device memory of the allocated part of each GPU: 10Gi."
    ),
]
StorageOption = Annotated[str | None, typer.Option(metavar="BYTES", help="Disk space: 10Gi.")]
SlotOption = Annotated[
    list[str] | None, typer.Option("--slot", metavar="NAME=AMOUNT", help="Amount of any other slot; repeatable.")
]
PoolOption = Annotated[str | None, typer.Option(metavar="POOL", help="Pool to run in (default: a suitable one).")]
RegionOption = Annotated[str | None, typer.Option(metavar="REGION", help="Preferred region, such as eu-west.")]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env", "-e", metavar="NAME=VALUE", help="Environment variable; NAME alone passes your own value; repeatable."
    ),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="NAME=VALUE", help="Label; repeatable.")
]
ArchitectureOption = Annotated[
    str | None, typer.Option("--arch", metavar="ARCH", help="CPU architecture, such as x86_64 or aarch64.")
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="NAME=VALUE", help="Label that the node must have; repeatable."),
]
TolerateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerate",
        metavar="KEY[=VALUE][:EFFECT[:SECONDS]]",
        help="Taint to tolerate; with NoExecute, SECONDS limits for how long; repeatable.",
    ),
]
PortsOption = Annotated[
    int,
    typer.Option(
        "--ports", metavar="N", min=0, help="Number of node ports to assign to each task, listed in MOORING_PORTS."
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME[:spread|pack[:strict]]",
        help="Spread over or pack onto nodes with your other work of this group; a preference unless strict.",
    ),
]
NoPreemptOption = Annotated[bool, typer.Option("--no-preempt", help="Never preempt other work.")]
NotPreemptibleOption = Annotated[
    bool, typer.Option("--not-preemptible", help="Never be preempted by higher priorities.")
]
TaintOption = Annotated[
    list[str] | None,
    typer.Option(
        "--taint",
        metavar="KEY[=VALUE][:EFFECT]",
        help="Taint that repels work without a matching toleration; repeatable.",
    ),
]
LicenceOption = Annotated[
    str | None, typer.Option("--licence", metavar="LICENCE", help="Licence that the node's licence must cover.")
]
MachineImageOption = Annotated[
    str | None,
    typer.Option(
        "--machine-image",
        metavar="NAME[:VERSION]",
        help="Image that the node was created from; the version may be a pattern or a comparison: cml:>=2.6,<3.",
    ),
]
OnInsufficientOption = Annotated[
    OnInsufficientChoice | None,
    typer.Option("--on-insufficient", help="Action if capacity is insufficient (default: the pool's setting)."),
]
ImageOption = Annotated[
    str | None, typer.Option("--image", metavar="IMAGE", help="Container image (default: run as a process).")
]
PortOption = Annotated[
    list[int] | None,
    typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port that the container listens on; repeatable."),
]
VolumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--volume",
        "-v",
        metavar="NAME:/path[:ro]",
        help="Mount of a project volume, or of a node folder if the pool allows it; repeatable.",
    ),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="NAME[=FILE]", help="Project secret to provide as a file in /run/secrets; repeatable."
    ),
]
PullOption = Annotated[PullChoice | None, typer.Option("--pull", help="Image pull policy.")]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="UID[:GID]", help="User of the container (default: the image's user).")
]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Mount the container's root file system read-only.")]
CapabilityOption = Annotated[
    list[str] | None,
    typer.Option("--cap-add", metavar="NAME", help="Linux capability that the container keeps: CHOWN; repeatable."),
]
ReadyHttpOption = Annotated[
    str | None,
    typer.Option("--ready-http", metavar="PORT[/path]", help="HTTP readiness probe, every 10 seconds."),
]
TerminalOption = Annotated[
    bool, typer.Option("--terminal", "--tty", "-t", help="Allocate a terminal, which `mooring attach` connects to.")
]
InteractiveOption = Annotated[
    bool, typer.Option("--interactive", "-i", help="Keep standard input open, which `mooring attach` connects to.")
]
PriorityOption = Annotated[int | None, typer.Option(min=0, max=100, help="Priority; higher is placed earlier.")]
PrivateOption = Annotated[bool, typer.Option("--private", help="Exempt from quotas; requires the right `private`.")]
TimeOption = Annotated[
    str | None, typer.Option("--time", metavar="TIME", help="Time limit from the start: 30m, 2h, 1-12:00:00.")
]
IdleTimeoutOption = Annotated[
    str | None,
    typer.Option("--idle-timeout", metavar="TIME", help="Idle time after which the session ends: 30m, 2h."),
]
SignalOption = Annotated[
    str | None,
    typer.Option("--signal", metavar="SIGNAL@SECONDS", help="Signal to send SECONDS before the time limit."),
]
StartAtOption = Annotated[
    str | None,
    typer.Option("--start-at", metavar="TIME", help="Earliest start: 14:00, 2026-05-01T12:00, or +2h from now."),
]
StartOption = Annotated[
    str | None,
    typer.Option("--start", metavar="TIME", help="Start: 14:00, 2026-11-20T14:00, or +2h from now (default: now)."),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--end", metavar="TIME", help="End, if --for is not given: 16:00, 2026-11-20T16:00, or +2h from the start."
    ),
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Duration: 90m, 2h, 1d.")]
TimezoneOption = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Time zone of the given times, such as Europe/Berlin (default: that of this machine).",
    ),
]
LeadOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Time before the start at which it is prepared: 20m (default: the pool's setting)."
    ),
]
GraceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Maximum delay of the start: 5m (default: the pool's setting).")
]
InOption = Annotated[str | None, typer.Option("--in", metavar="BOOKING", help="Booking to run in, by name or id.")]
AfterOkOption = Annotated[
    list[str] | None, typer.Option("--after-ok", metavar="NAME", help="Workload that must succeed first; repeatable.")
]
AfterAnyOption = Annotated[
    list[str] | None, typer.Option("--after-any", metavar="NAME", help="Workload that must end first; repeatable.")
]
AfterFailOption = Annotated[
    list[str] | None, typer.Option("--after-fail", metavar="NAME", help="Workload that must fail first; repeatable.")
]
KeepWaitingOption = Annotated[
    bool,
    typer.Option(
        "--keep-waiting", help="Stay pending if a dependency can no longer be satisfied, instead of being cancelled."
    ),
]
SingletonOption = Annotated[
    str | None,
    typer.Option(
        "--singleton", metavar="WORD", help="Run after your earlier workloads with the same key, one at a time."
    ),
]
ArrayOption = Annotated[
    str | None,
    typer.Option(
        "--array",
        metavar="FIRST-LAST[:STEP][%PARALLEL]",
        help="Array with a task per index, which is in MOORING_ARRAY_INDEX.",
    ),
]
RetriesOption = Annotated[
    int | None, typer.Option("--retries", metavar="N", min=0, help="Maximum retries of a failed task.")
]
RetryOnOption = Annotated[
    str | None, typer.Option("--retry-on", metavar="CODES", help="Exit codes to retry: 1,75 (default: all).")
]
TasksOption = Annotated[bool, typer.Option("--tasks", help="List all tasks of an array.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Submit nothing; show the placement, or why it would be pending.")
]
DomainOption = Annotated[str | None, typer.Option(metavar="DOMAIN", help="Domain (default: your own).")]
ActiveOption = Annotated[bool | None, typer.Option("--active/--inactive", help="Activate or deactivate it.")]
PolicyOption = Annotated[str | None, typer.Option(metavar="POLICY", help='Policy to assign, or "" for none.')]
ProjectOption = Annotated[
    str | None,
    typer.Option(metavar="PROJECT", help="Project that you are a member of (default: your default project)."),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Do not wait for unreachable nodes; their resources stay charged until they answer."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
