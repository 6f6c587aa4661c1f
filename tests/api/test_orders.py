"""What a task is told about its place in its workload."""

import pytest

from mooring.api.orders import variables_of
from mooring.model.workloads import Kind


@pytest.mark.parametrize(
    ("kind", "array", "tasks", "index", "told"),
    [
        (Kind.SESSION, None, 1, 0, {"MOORING_TASK_ROLE": "main", "MOORING_CLUSTER_SIZE": "1"}),
        (Kind.SESSION, None, 3, 2, {"MOORING_TASK_ROLE": "sub", "MOORING_CLUSTER_SIZE": "3"}),
        (
            Kind.SESSION,
            {"first": 1, "step": 2},
            50,
            49,
            {"MOORING_ARRAY_INDEX": "99", "MOORING_ARRAY_COUNT": "50"},
        ),
        (Kind.DEPLOYMENT, None, 3, 1, {}),
    ],
)
def test_a_task_is_told_its_index_or_its_role(
    kind: Kind, array: dict[str, int] | None, tasks: int, index: int, told: dict[str, str]
):
    assert variables_of(kind, array, tasks, index) == told
