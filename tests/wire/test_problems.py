"""Validation errors are messages that the author of a request can act on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mooring.wire.problems import refused
from mooring.wire.workloads.workloads import WorkloadRequest

WEB: dict[str, Any] = {"name": "web", "kind": "deployment", "containers": [{"image": "nginx"}]}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"image": "nginx; reboot"}, "containers.0.image: write the name of an image, such as nginx:1.27"),
        ({"image": "nginx", "name": "Ü"}, "containers.0.name: write 1 to 63 of a-z, 0-9 and '-'"),
        (
            {"image": "nginx", "mounts": [{"volume": "data", "path": "srv"}]},
            "containers.0.mounts.0.path: write a path that begins with /",
        ),
        ({"image": "nginx", "environment": {"1A": ""}}, "containers.0.environment.1A: write a name of letters"),
        ({"image": "nginx", "secrets": {"../x": "a"}}, "containers.0.secrets.../x: write the name of a file"),
        ({"image": "nginx", "command": ["a\0b"]}, "containers.0.command.0: it contains characters"),
        ({"image": "nginx", "command": "sleep 1"}, "containers.0.command: write a list here"),
        ({"image": "nginx", "port": 80}, "containers.0.port: there is no such field"),
        ({"image": "nginx", "mounts": [{"path": "/x"}]}, "containers.0.mounts.0.volume: this is needed"),
        ("nginx", "containers.0: write fields and their values here"),
    ],
)
def test_an_invalid_field_is_reported_with_the_valid_form(container: Any, words: str):
    with pytest.raises(ValidationError) as problem:
        WorkloadRequest.model_validate({**WEB, "containers": [container]})
    assert refused(problem.value).message.startswith(words)
