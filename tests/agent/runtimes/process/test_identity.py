"""OS user and environment of a process task."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import msgspec
import pytest

from mooring.agent.runtimes.process.identity import (
    Identity,
    IdentityRefused,
    environment,
    identity_for,
    task_environment,
)
from mooring.wire.agents.desired_tasks import Owner, Peer
from tests.agent.builders import container, order, owner

RANGE = (200_000, 299_999)
ROOT_ONLY = frozenset({0})


def choose(whose: Owner, *, agent_uid: int = 0, forbidden: frozenset[int] = ROOT_ONLY) -> Identity:
    return identity_for(whose, agent_uid=agent_uid, uid_range=RANGE, forbidden=forbidden)


def test_a_project_has_its_own_uid_in_the_reserved_range():
    assert (choose(owner(1)).uid, choose(owner(42)).uid) == (200_001, 200_042)
    assert choose(owner(42)).gid == 200_042
    assert choose(owner(42)).groups == ()


@pytest.mark.parametrize("number", [-1, -200_000, 100_000, 10**12])
def test_a_project_number_beyond_the_range_is_refused_with_the_range(number):
    with pytest.raises(IdentityRefused, match="200000 to 299999"):
        choose(owner(number))


def test_a_mapped_user_is_taken():
    account = pwd.getpwnam("nobody")
    found = choose(owner(os_user="nobody"))
    assert (found.uid, found.gid) == (account.pw_uid, account.pw_gid)
    assert 0 not in found.groups


def test_root_is_refused_under_every_name():
    for account in pwd.getpwall():
        if account.pw_uid == 0:
            with pytest.raises(IdentityRefused, match="root"):
                choose(owner(os_user=account.pw_name))


def test_a_mapped_user_that_does_not_exist_is_refused_by_name():
    with pytest.raises(IdentityRefused, match="no-such-person"):
        choose(owner(os_user="no-such-person"))


def test_the_user_that_owns_the_agents_folder_is_refused():
    uid = pwd.getpwnam("nobody").pw_uid
    with pytest.raises(IdentityRefused, match="owns the agent's folder"):
        choose(owner(os_user="nobody"), forbidden=frozenset({0, uid}))


def test_a_uid_of_the_range_that_an_account_has_is_refused(monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.getpwnam("nobody"))
    with pytest.raises(IdentityRefused, match="belongs to 'nobody'"):
        choose(owner(5))


def test_an_agent_without_root_runs_tasks_as_itself():
    assert choose(owner(5, os_user="root"), agent_uid=1000).uid is None


def test_the_environment_is_clean_and_identifies_the_task(monkeypatch):
    monkeypatch.setenv("AGENT_SECRET", "hidden")
    task = order("true", index=2, attempt=3, workload_name="train")
    found = environment(task, container("true"), Identity(200_007, 200_007, (), "mooring-7"), Path("/srv/w"))
    assert "AGENT_SECRET" not in found
    assert found["HOME"] == "/srv/w"
    assert found["TMPDIR"] == "/srv/w/tmp"
    assert found["USER"] == "mooring-7"
    assert found["MOORING_TASK_ID"] == str(task.task_id)
    assert found["MOORING_WORKLOAD"] == "train"
    assert found["MOORING_WORKLOAD_ID"] == str(task.workload_id)
    assert (found["MOORING_INDEX"], found["MOORING_ATTEMPT"]) == ("2", "3")


def test_a_container_may_set_its_environment_but_not_its_identity():
    task = order("true")
    own = container("true", environment={"PATH": "/opt/bin", "MOORING_TASK_ID": "another"})
    found = environment(task, own, Identity(200_007, 200_007, (), "mooring-7"), Path("/srv/w"))
    assert found["PATH"] == "/opt/bin"
    assert found["MOORING_TASK_ID"] == str(task.task_id)


def test_a_task_gets_its_index_in_its_environment_and_cannot_override_it():
    task = msgspec.structs.replace(order("true"), variables={"MOORING_ARRAY_INDEX": "7"})
    own = container("true", environment={"MOORING_ARRAY_INDEX": "8"})
    found = environment(task, own, Identity(200_007, 200_007, (), "mooring-7"), Path("/srv/w"))
    assert found["MOORING_ARRAY_INDEX"] == "7"


def test_a_task_sees_its_own_devices_and_no_others():
    own = container("true", environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    who = Identity(200_007, 200_007, (), "mooring-7")
    with_devices = msgspec.structs.replace(order("true"), devices={"gpu": [(1, 1000), (3, 500)], "fpga": [(0, 1)]})
    found = environment(with_devices, own, who, Path("/srv/w"))
    assert found["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert found["MOORING_DEVICES"] == "fpga=0;gpu=1,3"
    assert found["MOORING_DEVICE_SHARES"] == "fpga=1;gpu=1000,500"
    without = environment(order("true"), own, who, Path("/srv/w"))
    assert (without["CUDA_VISIBLE_DEVICES"], without["MOORING_DEVICES"]) == ("", "")


def test_a_person_finds_the_same_programs_as_in_a_shell(monkeypatch):
    monkeypatch.setenv("PATH", "/home/person/bin:/usr/bin")
    found = environment(order("true"), container("true"), Identity(None, os.getgid(), (), "person"), Path("/srv/w"))
    assert found["PATH"] == "/home/person/bin:/usr/bin"


def test_a_task_gets_its_peers_in_its_environment():
    peers = [
        Peer(index=0, name="main", address="10.0.0.1", ports=[30001, 30002]),
        Peer(index=1, name="sub1", address="10.0.0.2"),
        Peer(index=2, name="sub2"),
    ]
    found = task_environment(order("true", peers=peers), container("true"))
    names = ("MOORING_PEERS", "MOORING_PEER_ADDRESSES", "MOORING_PEER_PORTS")
    assert [found[name] for name in names] == ["main,sub1,sub2", "10.0.0.1,10.0.0.2,", "30001,30002;;"]
    assert not set(names) & set(task_environment(order("true"), container("true")))
