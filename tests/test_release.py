"""`make release`: the SBOM is complete, and only a clean audit lets it succeed. Its tools are fakes here."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CLEAN = {"dependencies": [{"name": "fastapi", "version": "0.135.0", "vulns": []}]}
VULNERABLE = {
    "dependencies": [
        {"name": "fastapi", "version": "0.1", "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["0.135.0"]}]}
    ]
}
METADATA = """Metadata-Version: 2.4
Name: mooring
Version: 1.0
Requires-Dist: fastapi>=0.135
Requires-Dist: Backports.Tarfile>=1.2
Requires-Dist: another-python; python_version < "3"
Requires-Dist: only-with-an-extra; extra == "kubernetes"
"""


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with a wheel that is built already and tools of its own."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dist, tools = tmp_path / "dist", tmp_path / "tools"
    dist.mkdir()
    (tools / "bin").mkdir(parents=True)
    for name, value in (("DIST", dist), ("TOOLS", tools), ("INSTALLED", tmp_path / "installed")):
        monkeypatch.setattr(module, name, value)
    with zipfile.ZipFile(dist / "mooring-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("mooring-1.0.dist-info/METADATA", METADATA)
    monkeypatch.setattr(module, "build", lambda: "1.0")
    monkeypatch.setattr(module, "install_tools", lambda: None)
    monkeypatch.setattr(module, "install_wheel", lambda _wheel: None)
    sbom_of(module, "fastapi", "backports-tarfile", "starlette")
    return module


def sbom_of(release: ModuleType, *components: str) -> None:
    """Let the tool for SBOMs find these packages."""
    content = {"metadata": {"component": {"name": "mooring"}}, "components": [{"name": name} for name in components]}
    tool(release, "cyclonedx-py", "--output-file", content)


def tool(release: ModuleType, name: str, option: str, content: Any, *, exit_code: int = 0, error: str = "") -> None:
    """A program that writes this JSON, if any, to the file named by the option."""
    program = release.TOOLS / "bin" / name
    write = f"open(sys.argv[sys.argv.index({option!r}) + 1], 'w').write({json.dumps(content)!r})" if content else ""
    lines = [f"#!{sys.executable}", "import sys", write, f"sys.stderr.write({error!r})", f"sys.exit({exit_code})"]
    program.write_text("\n".join(lines))
    program.chmod(0o755)


def audit_of(release: ModuleType, content: Any, *, exit_code: int = 0, error: str = "") -> None:
    tool(release, "pip-audit", "--output", content, exit_code=exit_code, error=error)


def test_a_clean_audit_and_a_complete_sbom_let_a_release_succeed(release: ModuleType) -> None:
    audit_of(release, CLEAN)
    release.main()
    sbom = json.loads((release.DIST / "mooring-1.0.cdx.json").read_text())
    assert sbom["metadata"]["component"]["version"] == "1.0"
    assert {"fastapi", "backports-tarfile"} <= {each["name"] for each in sbom["components"]}


def test_an_sbom_that_lacks_a_dependency_of_the_wheel_fails_the_release(release: ModuleType) -> None:
    audit_of(release, CLEAN)
    sbom_of(release, "fastapi", "starlette")
    with pytest.raises(SystemExit, match="the SBOM lacks backports-tarfile"):
        release.main()


@pytest.mark.parametrize(
    ("content", "exit_code", "error", "message"),
    [
        pytest.param(VULNERABLE, 1, "found 1", "fastapi 0.1: PYSEC-2026-1", id="vulnerability"),
        pytest.param(None, 1, "cannot connect to pypi.org", "NOT audited.*\n?.*cannot connect", id="unreachable"),
        pytest.param(None, 0, "", "NOT audited", id="no report"),
        pytest.param({"dependencies": []}, 0, "", "the audit failed", id="nothing audited"),
        pytest.param(CLEAN, 1, "skipped a package", "the audit failed: skipped a package", id="failed"),
    ],
)
def test_a_release_without_a_clean_audit_exits_with_an_error(
    release: ModuleType, content: Any, exit_code: int, error: str, message: str
) -> None:
    audit_of(release, content, exit_code=exit_code, error=error)
    with pytest.raises(SystemExit, match=message) as stopped:
        release.main()
    assert isinstance(stopped.value.code, str), "a text is printed and becomes exit code 1"
