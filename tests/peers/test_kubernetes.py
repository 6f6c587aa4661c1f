"""The script that builds Kubernetes, and a control plane of the tests."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.peers.kubernetes import BUILD, PROGRAMS, KubernetesCluster, built_programs
from tests.system.servers import eventually


def build(cache: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(cache.parent), "MOORING_KUBERNETES_FOLDER": str(cache)}
    return subprocess.run(["/bin/bash", BUILD], env=environment, capture_output=True, text=True, check=False)


def test_a_machine_without_apt_gets_the_list_of_needed_packages_and_nothing_is_written(tmp_path: Path):
    ended = build(tmp_path / "cache", path=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "needs Debian, and root to install the compiler" in ended.stderr
    assert not (tmp_path / "cache").exists()


def test_a_user_other_than_root_gets_the_list_of_needed_packages(tmp_path: Path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"apt-get": "exit 9", "id": "echo 1000"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    ended = build(tmp_path / "cache", path=str(programs))
    assert ended.returncode == 1
    assert "KUBERNETES CANNOT BE BUILT HERE" in ended.stderr


def test_programs_that_are_built_are_not_built_again(tmp_path: Path):
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    ended = build(tmp_path, path=os.environ["PATH"])
    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}\n")


def test_a_folder_with_some_of_the_programs_is_not_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOORING_KUBERNETES_FOLDER", str(tmp_path))
    for name in PROGRAMS:
        assert built_programs() is None
        (tmp_path / name).touch(mode=0o755)
    assert built_programs() == tmp_path


@pytest.mark.slow
def test_the_scheduler_binds_a_pod_to_a_node_without_a_kubelet(kubernetes: KubernetesCluster):
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = [{"type": "Ready", "status": "True"}]
    node = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    create(kubernetes, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hollow"}, "status": node})
    spec = {"containers": [{"name": "main", "image": "nginx"}]}
    create(kubernetes, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bound"}, "spec": spec})
    eventually(lambda: kubectl(kubernetes, "get", "pod", "bound", "--output=jsonpath={.spec.nodeName}") == "hollow")


def create(cluster: KubernetesCluster, manifest: object) -> None:
    kubectl(cluster, "create", "--filename=-", given=json.dumps(manifest))


def kubectl(cluster: KubernetesCluster, *words: str, given: str = "") -> str:
    programs = built_programs()
    assert programs is not None
    command = [str(programs / "kubectl"), f"--kubeconfig={cluster.kubeconfig}", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
