"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mooring.cli.completion import complete_nodes, complete_workloads
from mooring.cli.output import Format

WORK = "Work"
CLUSTER = "Cluster"
ACCOUNT = "Account"
TENANTS = "Tenants"
SERVER = "Server"


class PullChoice(StrEnum):
    ALWAYS = "always"
    IF_NOT_PRESENT = "if-not-present"
    NEVER = "never"


class OnInsufficientChoice(StrEnum):
    WAIT = "wait"
    FAIL = "fail"
    SCALE_UP = "scale_up"


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="URL",
        help="The server to ask; else MOORING_SERVER, the last login, the server of this machine.",
    ),
]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="How to show it.")]
WorkloadArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A workload's name or id.", autocompletion=complete_workloads)
]
ContainerOption = Annotated[
    str | None, typer.Option("--container", "-c", metavar="NAME", help="Which container; else the first.")
]
TaskOption = Annotated[int | None, typer.Option("--task", metavar="N", min=0, help="Which task; else any that runs.")]
WorkloadsArgument = Annotated[
    list[str], typer.Argument(metavar="NAME", help="Workloads by name or id.", autocompletion=complete_workloads)
]
NodeLicenceOption = Annotated[
    str | None, typer.Option("--licence", metavar="LICENCE", help="The licence that the machine has.")
]
NodeImageOption = Annotated[
    str | None, typer.Option("--machine-image", metavar="NAME", help="The image that the machine was made from.")
]
NodeImageVersionOption = Annotated[
    str | None, typer.Option("--machine-image-version", metavar="VERSION", help="The version of that image.")
]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node's name.", autocompletion=complete_nodes)]

CpuOption = Annotated[str | None, typer.Option(metavar="CORES", help="Processor cores: 2, 0.5 or 500m.")]
MemoryOption = Annotated[str | None, typer.Option(metavar="BYTES", help="Main memory: 512Mi, 2Gi.")]
GpuOption = Annotated[str | None, typer.Option(metavar="DEVICES", help="Graphics processors: 1, or 0.5 of one.")]
GpuModelOption = Annotated[
    list[str] | None,
    typer.Option("--gpu-model", metavar="MODEL", help="Only graphics processors of this model; again for another."),
]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option("--gpu-memory", metavar="BYTES", help="Device memory of its share of each graphics processor: 10Gi."),
]
StorageOption = Annotated[str | None, typer.Option(metavar="BYTES", help="Disk space: 10Gi.")]
SlotOption = Annotated[
    list[str] | None, typer.Option("--slot", metavar="NAME=AMOUNT", help="Any other resource; may be repeated.")
]
PoolOption = Annotated[str | None, typer.Option(metavar="POOL", help="The pool to run in; else one that suits.")]
RegionOption = Annotated[str | None, typer.Option(metavar="REGION", help="Where it should be, such as eu-west.")]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment; NAME alone passes yours on; may be repeated."),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="NAME=VALUE", help="A label; may be repeated.")
]
ArchitectureOption = Annotated[
    str | None, typer.Option("--arch", metavar="ARCH", help="The processor family, such as x86_64 or aarch64.")
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="NAME=VALUE", help="Only nodes with this label; may be repeated."),
]
TolerateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerate",
        metavar="KEY[=VALUE][:EFFECT[:SECONDS]]",
        help="Nodes with this taint are fine; beside NoExecute ones for so long. May be repeated.",
    ),
]
PortsOption = Annotated[
    int, typer.Option("--ports", metavar="N", min=0, help="So many ports of its node, named in MOORING_PORTS.")
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME[:spread|pack[:strict]]",
        help="Apart from (or with) your other work of this group, by node; a wish unless strict.",
    ),
]
NoPreemptOption = Annotated[
    bool, typer.Option("--no-preempt", help="Wait for room rather than take the place of others.")
]
NotPreemptibleOption = Annotated[
    bool, typer.Option("--not-preemptible", help="Higher priorities may not take its place.")
]
TaintOption = Annotated[
    list[str] | None,
    typer.Option(
        "--taint", metavar="KEY[=VALUE][:EFFECT]", help="Keeps away work that does not tolerate it; may be repeated."
    ),
]
LicenceOption = Annotated[
    str | None, typer.Option("--licence", metavar="LICENCE", help="Only nodes whose licence covers this one.")
]
MachineImageOption = Annotated[
    str | None,
    typer.Option(
        "--machine-image",
        metavar="NAME[:VERSION]",
        help="Only nodes made from this image; the version may be a pattern or a comparison: cml:>=2.6,<3.",
    ),
]
OnInsufficientOption = Annotated[
    OnInsufficientChoice | None,
    typer.Option("--on-insufficient", help="What to do when there is no room; else as the pool says."),
]
ImageOption = Annotated[
    str | None, typer.Option("--image", "-i", metavar="IMAGE", help="A container image; without it a process.")
]
PortOption = Annotated[
    list[int] | None,
    typer.Option("--port", metavar="PORT", min=1, max=65535, help="What its container listens on; may be repeated."),
]
VolumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--volume",
        "-v",
        metavar="NAME:/path[:ro]",
        help="A volume of the project, or /folder of the node where its pool allows that; may be repeated.",
    ),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="NAME[=FILE]", help="A secret of the project as a file in /run/secrets; may be repeated."
    ),
]
PullOption = Annotated[PullChoice | None, typer.Option("--pull", help="When to fetch the image.")]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="UID[:GID]", help="Whom its container runs as; else as the image says.")
]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Its container cannot write outside of volumes.")]
CapabilityOption = Annotated[
    list[str] | None,
    typer.Option("--cap-add", metavar="NAME", help="A power of root that its container keeps: CHOWN; may be repeated."),
]
ReadyHttpOption = Annotated[
    str | None,
    typer.Option("--ready-http", metavar="PORT[/path]", help="It is ready when this answers; asked every 10 seconds."),
]
TerminalOption = Annotated[
    bool, typer.Option("--terminal", help="Its container has a terminal, which `mooring attach` reaches.")
]
PriorityOption = Annotated[int | None, typer.Option(min=0, max=100, help="Higher is placed earlier.")]
PrivateOption = Annotated[bool, typer.Option("--private", help="Exempt from quotas; this needs a right.")]
TimeOption = Annotated[
    str | None, typer.Option("--time", metavar="TIME", help="End it so long after its start: 30m, 2h, 1-12:00:00.")
]
IdleTimeoutOption = Annotated[
    str | None,
    typer.Option("--idle-timeout", metavar="TIME", help="End it when it has done nothing for so long: 30m, 2h."),
]
SignalOption = Annotated[
    str | None,
    typer.Option("--signal", metavar="SIGNAL@SECONDS", help="Warn it so many seconds before its time is over."),
]
StartAtOption = Annotated[
    str | None, typer.Option("--start-at", metavar="TIME", help="Not before: 14:00, 2026-05-01T12:00, or +2h from now.")
]
StartOption = Annotated[
    str | None, typer.Option("--start", metavar="TIME", help="14:00, 2026-11-20T14:00, or +2h from now; else now.")
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--end", metavar="TIME", help="When it ends: 16:00, 2026-11-20T16:00, or +2h from its start; or say --for."
    ),
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="How long: 90m, 2h, 1d.")]
TimezoneOption = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="Whose clock is meant: Europe/Berlin; else yours.")
]
LeadOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Make it ready so long before: 20m; else as the pool says.")
]
GraceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start it at most so late: 5m; else as the pool says.")
]
InOption = Annotated[
    str | None, typer.Option("--in", metavar="BOOKING", help="In the room of a booking, by its name or id.")
]
AfterOkOption = Annotated[
    list[str] | None, typer.Option("--after-ok", metavar="NAME", help="Start when this has succeeded; may be repeated.")
]
AfterAnyOption = Annotated[
    list[str] | None, typer.Option("--after-any", metavar="NAME", help="Start when this has ended; may be repeated.")
]
AfterFailOption = Annotated[
    list[str] | None, typer.Option("--after-fail", metavar="NAME", help="Start when this has failed; may be repeated.")
]
KeepWaitingOption = Annotated[
    bool, typer.Option("--keep-waiting", help="Stay in the queue when what it comes after ended the other way.")
]
SingletonOption = Annotated[
    str | None, typer.Option("--singleton", metavar="WORD", help="One after the other with your others of this word.")
]
ArrayOption = Annotated[
    str | None,
    typer.Option("--array", metavar="FIRST-LAST[:STEP][%PARALLEL]", help="A task per index, in MOORING_ARRAY_INDEX."),
]
RetriesOption = Annotated[
    int | None, typer.Option("--retries", metavar="N", min=0, help="Try a failed task again so often.")
]
RetryOnOption = Annotated[
    str | None, typer.Option("--retry-on", metavar="CODES", help="Only after these exit codes: 1,75.")
]
TasksOption = Annotated[bool, typer.Option("--tasks", help="List all tasks of an array.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Submit nothing; show where it would go now, or why it would wait.")
]
DomainOption = Annotated[str | None, typer.Option(metavar="DOMAIN", help="A domain; else your own.")]
ActiveOption = Annotated[bool | None, typer.Option("--active/--inactive", help="Whether it can be used.")]
PolicyOption = Annotated[str | None, typer.Option(metavar="POLICY", help='The policy that it carries; "" for none.')]
ProjectOption = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="A project that you are a member of; else your default project.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Do not wait for nodes that do not answer; they stay charged until they do.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
