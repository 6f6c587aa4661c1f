"""A Kubernetes control plane without kubelets: etcd, kube-apiserver, and kube-scheduler and kube-controller-manager.

`scripts/kubernetes-test-server.sh` builds the programs once. Pods are bound to nodes that tests create; none starts.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.servers import end_with_parent, free_port, private_folder, running_etcd, stop, unavailable, unprivileged

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
BUILD = Path(__file__).parents[2] / "scripts" / "kubernetes-test-server.sh"
_START_SECONDS = 120.0
_POLL_SECONDS = 0.1
_REQUESTS_PER_SECOND = 5000
"""The limit of the scheduler and the controllers, as in the benchmarks of Kubernetes; its default is 50 or less."""


@dataclass(frozen=True)
class KubernetesCluster:
    """A running control plane."""

    folder: Path
    port: int
    token: str
    """An administrator's."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)

    def is_ready(self) -> bool:
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=5, context=self.trust()) as answer:
            return bool(answer.status == 200)
        return False


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesCluster]:
    """A control plane with scheduler and controllers, shared by the session: use namespaces and nodes of your own."""
    programs = built_programs()
    if programs is None:
        unavailable(
            "kubernetes", "Kubernetes tests need a build: run `scripts/kubernetes-test-server.sh` (root on Debian)"
        )
    with running_kubernetes(programs) as cluster:
        yield cluster


def programs_folder() -> Path:
    """Return the folder that the build script fills."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("MOORING_KUBERNETES_FOLDER") or cache / "mooring-tests" / "kubernetes")


def built_programs() -> Path | None:
    folder = programs_folder()
    return folder if all(os.access(folder / name, os.X_OK) for name in PROGRAMS) else None


def version(programs: Path) -> str:
    """Return the scheduler's version, such as 1.20.2."""
    printed = subprocess.run([programs / "kube-scheduler", "--version"], capture_output=True, text=True, check=True)
    return printed.stdout.split()[-1].removeprefix("v")


@contextmanager
def running_kubernetes(programs: Path, controllers: Sequence[str] = ("job",)) -> Iterator[KubernetesCluster]:
    """Run an empty control plane with these controllers. etcd writes with fsync, as in production."""
    with running_etcd() as etcd, private_folder("mooring-kubernetes-") as folder, ExitStack() as stack:
        programs = _reachable(programs, folder)
        cluster = KubernetesCluster(folder, free_port(), secrets.token_urlsafe(16))
        _write_credentials(cluster)
        apiserver = _start(stack, folder, [programs / "kube-apiserver", *_server_flags(cluster, etcd.endpoint)])
        _wait(cluster, apiserver)
        _write_kubeconfig(cluster)
        local = ["--bind-address=127.0.0.1", "--port=0", "--authentication-skip-lookup=true"]
        scheduler = ["--config", str(_scheduler_configuration(cluster)), f"--secure-port={free_port()}", *local]
        _start(stack, folder, [programs / "kube-scheduler", *scheduler])
        manager = [
            f"--kubeconfig={cluster.kubeconfig}", f"--controllers={','.join(controllers)}", "--leader-elect=false",
            f"--secure-port={free_port()}", f"--cert-dir={folder}/manager", *local,
            f"--kube-api-qps={_REQUESTS_PER_SECOND}", f"--kube-api-burst={_REQUESTS_PER_SECOND}",
        ]  # fmt: skip
        _start(stack, folder, [programs / "kube-controller-manager", *manager])
        yield cluster


def _server_flags(cluster: KubernetesCluster, etcd: str) -> list[str]:
    key = cluster.folder / "accounts.key"
    return [
        f"--etcd-servers={etcd}", "--bind-address=127.0.0.1", f"--secure-port={cluster.port}",
        "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
        f"--cert-dir={cluster.authority.parent}", f"--token-auth-file={cluster.folder}/tokens.csv",
        "--authorization-mode=RBAC", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
        f"--service-account-issuer={cluster.url}",
        # Nodes without kubelets never report that they are ready.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    ]  # fmt: skip


def _reachable(programs: Path, folder: Path) -> Path:
    """Return a folder with the programs that the unprivileged user can reach, unlike root's home."""
    if os.geteuid() != 0:
        return programs
    reachable = folder / "programs"
    reachable.mkdir(mode=0o755)
    for name in PROGRAMS:
        (reachable / name).write_bytes((programs / name).read_bytes())
        (reachable / name).chmod(0o755)
    return reachable


def _write_credentials(cluster: KubernetesCluster) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    _hand_over(cluster.folder / "accounts.key", pem.decode())
    _hand_over(cluster.folder / "tokens.csv", f'{cluster.token},admin,admin,"system:masters"\n')


def _write_kubeconfig(cluster: KubernetesCluster) -> None:
    server = {"server": cluster.url, "certificate-authority": str(cluster.authority)}
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": cluster.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    _hand_over(cluster.kubeconfig, json.dumps(configuration))


def _scheduler_configuration(cluster: KubernetesCluster) -> Path:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(cluster.kubeconfig),
            "qps": _REQUESTS_PER_SECOND,
            "burst": _REQUESTS_PER_SECOND,
        },
    }
    path = cluster.folder / "scheduler.json"
    _hand_over(path, json.dumps(configuration))
    return path


def _hand_over(path: Path, text: str) -> None:
    """Write a file that only the user of the servers can read."""
    path.touch(mode=0o600)
    path.write_text(text)
    if "user" in (identity := unprivileged()):
        os.chown(path, int(identity["user"]), int(identity["group"]))


def _start(stack: ExitStack, folder: Path, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    with (folder / f"{Path(command[0]).name}.log").open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder)},
            preexec_fn=end_with_parent,
            **unprivileged(),
        )
    stack.callback(stop, process, signal.SIGTERM)
    return process


def _wait(cluster: KubernetesCluster, apiserver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and apiserver.poll() is None:
        if cluster.authority.exists() and cluster.is_ready():
            return
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"kube-apiserver did not start:\n{(cluster.folder / 'kube-apiserver.log').read_text()[-2000:]}")
