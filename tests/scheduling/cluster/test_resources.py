"""The resource model beside Kubernetes' own cases: limits, custom slots, utilisation."""

from __future__ import annotations

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.resources.task_resources import (
    Quality,
    check_resources,
    quality_of,
    requests_of,
    utilisation,
)
from mooring.model.workloads.containers import Container, TaskTemplate


def of(**container: dict[str, int]) -> TaskTemplate:
    return TaskTemplate((Container(**container),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "code"),
    [
        (of(slots={"cpu": 2}, limits={"cpu": 1}), "request-above-limit"),
        (of(slots={"fpga": 1}, limits={"fpga": 2}), "invalid-request"),
        (of(slots={"cpu": -1}), "invalid-request"),
    ],
)
def test_requests_must_be_within_limits(template, code):
    with pytest.raises(InvalidInput) as refused:
        check_resources(template)
    assert refused.value.code == code


def test_a_template_requests_the_larger_of_start_and_run():
    template = TaskTemplate(
        (Container(slots={"cpu": 100}), Container(slots={"cpu": 200})),
        init_containers=(Container(slots={"cpu": 50}, sidecar=True), Container(slots={"cpu": 400})),
        overhead={"cpu": 5},
    )
    assert requests_of(template) == {"cpu": 455}
    assert requests_of(template) == {"cpu": 455}
    check_resources(template)
    assert quality_of(template) is Quality.BURSTABLE


def test_utilisation_is_the_fraction_that_is_taken():
    assert utilisation({"cpu": 8, "gpu": 0, "memory": 4}, {"cpu": 2, "gpu": 1}) == {
        "cpu": 0.25,
        "gpu": 1.0,
        "memory": 0.0,
    }
