"""Updates of deployment templates; a template converted to a request and back is unchanged."""

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.workloads.containers import (
    Container,
    Mount,
    Probe,
    Pull,
    Restart,
    TaskTemplate,
    Volume,
    VolumeKind,
)
from mooring.model.workloads.lifetime.rollouts import Rollout
from mooring.services.deployments.updates import (
    as_request,
    cause_of,
    rollout_of,
    updated,
)
from mooring.wire.workloads.containers import TaskTemplateRequest
from mooring.wire.workloads.rollouts import RolloutRequest, UpdateRequest

FULL = TaskTemplate(
    containers=(
        Container(
            name="web",
            image="nginx:1",
            command=("nginx", "-g"),
            environment={"A": "1", "B": "2"},
            working_folder="/srv",
            slots={"cpu": 333, "memory": 2**30 + 1},
            limits={"memory": 2**31},
            pull=Pull.ALWAYS,
            ports=(80, 443),
            mounts=(Mount("data", "/data", read_only=True),),
            secrets={"key": "api-key"},
            readiness=Probe(path="/", port=80),
            liveness=Probe(command=("true",), failures=1),
            user="1000:1000",
            read_only=True,
            capabilities=("CHOWN",),
            shared_memory=1 << 20,
            terminal=True,
        ),
        Container(name="log", image="log:1"),
    ),
    init_containers=(Container(name="proxy", image="proxy:1", sidecar=True),),
    restart=Restart.ON_FAILURE,
    max_restarts=9,
    stop_grace_seconds=30,
    architecture="aarch64",
    volumes=(Volume("data", VolumeKind.NAMED),),
)
PROCESS = TaskTemplate((Container(command=("sleep", "60"), slots={"cpu": 1000}),), restart=Restart.ALWAYS)


@pytest.mark.parametrize("template", [FULL, PROCESS], ids=["containers", "a process"])
def test_a_template_loses_nothing_where_one_word_of_it_changes(template: TaskTemplate):
    assert updated(template, UpdateRequest(), 3) is template
    changed = updated(template, UpdateRequest(command=["serve"]), 3)
    assert changed != template
    back = updated(changed, UpdateRequest(command=list(template.containers[0].command)), 3)
    assert back == template


def test_a_change_of_one_container_leaves_the_others():
    asked = UpdateRequest(container="proxy", image="proxy:2", environment={"X": "1"}, resources={"cpu": "1"})
    new = updated(FULL, asked, 3)
    assert new.containers == FULL.containers
    assert (new.init_containers[0].image, new.init_containers[0].sidecar) == ("proxy:2", True)
    assert (new.init_containers[0].environment, new.init_containers[0].slots) == ({"X": "1"}, {"cpu": 1000})
    merged = updated(FULL, UpdateRequest(environment={"A": None, "C": "3"}, resources={"cpu": "1"}), 3).containers[0]
    assert merged.environment == {"B": "2", "C": "3"}
    assert merged.slots == {"cpu": 1000, "memory": 2**30 + 1}


def test_a_whole_template_is_taken_as_it_is():
    whole = TaskTemplateRequest.model_validate({"containers": [{"image": "b"}]})
    assert updated(FULL, UpdateRequest(template=whole), 3).containers == (Container(image="b"),)
    assert as_request(updated(FULL, UpdateRequest(template=whole), 3)).containers == whole.containers


def test_the_cause_names_what_changed_and_never_what_environments_say():
    asked = UpdateRequest(
        container="web", image="b", command=["x"], environment={"KEY": "secret"}, resources={"cpu": "2"}
    )
    assert cause_of(asked) == "web: image b, command, environment KEY, cpu 2"
    assert cause_of(UpdateRequest(image="b", cause="a fix")) == "a fix"


def test_bounds_stay_unless_they_are_given():
    asked = RolloutRequest(surge="25%", drain_seconds=0)
    new = rollout_of(Rollout(unavailable="2", deadline_seconds=60), asked)
    assert (new.surge, new.unavailable, new.drain_seconds, new.deadline_seconds) == ("25%", "2", 0, 60)
    assert rollout_of(new, None) == new
    with pytest.raises(InvalidInput):
        rollout_of(Rollout(), RolloutRequest(surge=0))
