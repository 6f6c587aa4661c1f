"""Workload files: parsing, and errors with file, document and line."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from mooring.client.files import read_documents
from mooring.model.errors import InvalidInput

WEB = "kind: deployment\nname: web\ncontainers:\n  - image: nginx\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "work.yaml"


def test_a_file_holds_several_documents(file: Path):
    file.write_text(f"# first\n---\n{WEB}---\n---\n{WEB.replace('web', 'other').replace('deployment', 'session')}")
    first, second = read_documents(str(file))
    assert (first.manifest.name, first.manifest.kind, first.number, first.line) == ("web", "deployment", 1, 3)
    assert (second.manifest.name, second.manifest.kind, second.number, second.line) == ("other", "session", 3, 9)


def test_a_folder_is_its_files_by_their_names_without_the_schema(tmp_path: Path):
    (tmp_path / "b.yml").write_text(WEB)
    (tmp_path / "a.json").write_text(
        '{\n\t"kind": "session",\n\t"name": "job",\n\t"containers": [{"command": ["a\\tb"]}]\n}'
    )
    (tmp_path / "mooring.schema.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("no workload")
    first, second = read_documents(str(tmp_path))
    assert (first.manifest.name, second.manifest.name) == ("job", "web")
    assert first.manifest.containers[0].command == ["a\tb"]


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(WEB.encode())))
    [document] = read_documents("-")
    assert document.location == "standard input, document 1, line 1"


def test_manifest_scalars_are_read_literally(file: Path):
    file.write_text(
        """
kind: lab
name: lab
start: 2030-01-14T09:00:00Z
duration: 1:30:00
containers:
  - name: main
    command: [echo, no, "on", '1', 0x10, 1e3, 2030-01-14]
    environment: {YES: yes, EMPTY: ''}
    resources: &usual {cpu: 0.5, memory: 1Gi}
  - name: other
    command: ["true"]
    resources: {<<: *usual, memory: 2Gi, gpu: 1}
"""
    )
    [document] = read_documents(str(file))
    container, other = document.manifest.containers
    assert container.command == ["echo", "no", "on", "1", "0x10", "1e3", "2030-01-14"]
    assert container.environment == {"YES": "yes", "EMPTY": ""}
    assert container.resources == {"cpu": "0.5", "memory": "1Gi"}
    assert other.resources == {"cpu": "0.5", "memory": "2Gi", "gpu": 1}
    assert document.manifest.kind == "lab"
    assert (document.manifest.duration, str(document.manifest.start)) == ("1:30:00", "2030-01-14 09:00:00+00:00")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param(WEB + "replica: 3\n", 5, "replica: there is no such field", id="an unknown field"),
        pytest.param(WEB.replace("nginx", "nginx; reboot"), 4, "containers.0.image: write the", id="an image"),
        pytest.param(
            WEB + "    environment:\n      PORT: 80\n",
            6,
            "containers.0.environment.PORT: input should be a valid string; write it in quotes: '80'",
            id="a number in an environment",
        ),
        pytest.param(WEB + "    command: [echo, true]\n", 5, "write it in quotes: 'true'", id="a word in a command"),
        pytest.param(WEB.replace("name: web\n", ""), 1, "name: this is needed", id="no name"),
        pytest.param(WEB.replace("kind: deployment\n", ""), 1, "kind: write one of deployment, session", id="no kind"),
        pytest.param(WEB.replace("deployment", "job"), 1, "kind: write one of deployment", id="an unknown kind"),
        pytest.param("- kind: deployment\n", 1, "the document: write fields and their values here", id="a list"),
        pytest.param("just words\n", 1, "the document: ", id="words"),
        pytest.param(WEB + "name: again\n", 5, "name is there twice", id="a field twice"),
        pytest.param(WEB + "labels: {[a]: b}\n", 5, "the name of a field must be text", id="a field without a name"),
        pytest.param(WEB + "labels: {<<: [a]}\n", 5, "only fields can be merged", id="a merge of words"),
        pytest.param(WEB + "labels: [\n", 6, "expected the node content", id="no YAML"),
        pytest.param(WEB + "\treplicas: 1\n", 5, "found character", id="a tab"),
        pytest.param(WEB + "labels: *nothing\n", 5, "found undefined alias", id="an alias of nothing"),
        pytest.param(
            WEB + "labels: !!python/object/apply:os.system [reboot]\n", 5, "labels: write names and", id="a program"
        ),
        pytest.param(
            WEB + "    resources:\n      cpu: 2\n      memory: 2048\n",
            7,
            "containers.0.resources.memory: memory: 2048 has no unit; write 2Gi, 2048Mi or 2048B",
            id="memory without a unit",
        ),
        pytest.param(WEB + "    shared_memory: 64\n", 5, "64 has no unit", id="shared memory without a unit"),
        pytest.param(WEB + "region: !!binary aGk=\n", 5, "tag:yaml.org,2002:binary is not supported here", id="a tag"),
        pytest.param(WEB + "labels: &a [*a]\n", 5, "more than a file may contain", id="itself in itself"),
        pytest.param(
            WEB + "x: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"x{n}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(6)),
            5,
            "more than a file may contain",
            id="a billion of aliases",
        ),
    ],
)  # fmt: skip
def test_errors_in_manifests_have_their_line(file: Path, text: str, line: int, words: str):
    file.write_text(f"{WEB.replace('web', 'first')}---\n{text}")
    with pytest.raises(InvalidInput) as refused:
        read_documents(str(file))
    assert refused.value.message.startswith(f"{file}, document 2, line {line + 5}: ")
    assert words in refused.value.message
    assert refused.value.code == "invalid-file"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "there is no workload", id="nothing"),
        pytest.param(b"---\n---\n", "there is no workload", id="only empty documents"),
        pytest.param(b"\xff\xfe", "is not UTF-8", id="no text"),
        pytest.param(b"#" * (1024 * 1024 + 1), "is larger than 1 MiB", id="huge"),
        pytest.param(b"[" * 5_000, "nested too deeply", id="deep"),
        pytest.param(b"name: a\0b\n", "special characters are not allowed", id="a NUL"),
        pytest.param(f"{WEB}---\n{WEB}".encode(), "'web' appears twice, first in", id="one name twice"),
    ],
)
def test_an_invalid_file_is_rejected(file: Path, content: bytes, words: str):
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        read_documents(str(file))


def test_a_missing_file_is_reported(tmp_path: Path):
    with pytest.raises(InvalidInput, match="No such file"):
        read_documents(str(tmp_path / "nothing.yaml"))
