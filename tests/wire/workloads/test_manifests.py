"""The schema of files: current where it is committed, true of the examples, and as strict as the requests."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for

from mooring.client.files import read_documents
from mooring.wire.workloads.manifest_schema import schema
from mooring.wire.workloads.manifests import lab_request, workload_request

EXAMPLES = Path(__file__).parents[3] / "examples"
SCHEMA = schema()
CHECKER = validator_for(SCHEMA)
WEB: dict[str, Any] = {"kind": "deployment", "name": "web", "containers": [{"image": "nginx"}]}


def test_the_schema_beside_the_examples_is_current():
    committed = json.loads((EXAMPLES / "mooring.schema.json").read_text())
    assert committed == SCHEMA, "run `mooring schema > examples/mooring.schema.json`"


def test_fields_are_explained_to_editors():
    definitions = SCHEMA["$defs"]
    assert definitions["ContainerRequest"]["properties"]["readiness"]["description"].startswith("Until it succeeds")
    assert definitions["DeploymentManifest"]["properties"]["restart"]["description"].startswith("None: never")
    assert definitions["LabManifest"]["description"].startswith("Work in a window of time")


@pytest.mark.parametrize("document", read_documents(str(EXAMPLES)), ids=lambda document: document.manifest.name)
def test_an_editor_finds_nothing_wrong_with_an_example(document: Any):
    value = document.manifest.model_dump(mode="json", exclude_unset=True)
    assert CHECKER.is_valid(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        WEB | {"kind": "job"},
        WEB | {"name": "Web"},
        WEB | {"replicas": 0},
        WEB | {"nmae": "web"},
        WEB | {"containers": []},
        WEB | {"containers": [{"image": "nginx", "imgae": "x"}]},
        WEB | {"containers": [{"image": "nginx; reboot"}]},
        WEB | {"containers": [{"image": "nginx", "capabilities": ["SYS_ADMIN"]}]},
    ],
)
def test_an_editor_finds_what_the_server_would_refuse(wrong: dict[str, Any]):
    assert CHECKER.is_valid(WEB)
    assert CHECKER.is_valid(WEB | {"containers": [{"image": "nginx", "resources": {"cpu": 0.5}}]})
    assert not CHECKER.is_valid(wrong)


def test_a_document_sets_only_the_fields_that_it_names():
    found = {document.manifest.name: document.manifest for document in read_documents(str(EXAMPLES))}
    web = workload_request(found["web"])
    assert (web.kind, web.type, web.name, web.replicas) == ("deployment", "compute", "web", 3)
    assert "priority" not in web.model_fields_set
    lab = found["networks-1"]
    assert lab.kind == "lab"
    asked = lab_request(lab)
    assert (asked.duration, asked.lead, asked.workload.kind, asked.workload.type) == (
        "3h",
        "15m",
        "session",
        "interactive",
    )
