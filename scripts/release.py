"""Build a release in dist/: source and wheel, an SBOM of what the wheel installs, and an audit of the locked versions.

An audit that could not be made is a failure, as is one that found something. Run it with `make release`.
"""

from __future__ import annotations

import email
import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
LOCK = ROOT / "requirements.lock"
TOOLS = ROOT / "build" / "release-tools"
INSTALLED = ROOT / "build" / "release-installed"


def main() -> None:
    version = build()
    install_tools()
    name = f"mooring-{version}"
    install_wheel(DIST / f"{name}-py3-none-any.whl")
    count = describe(DIST / f"{name}.cdx.json", version, requirements(DIST / f"{name}-py3-none-any.whl"))
    print(f"SBOM: {count} components that the wheel installs, in dist/{name}.cdx.json")
    failure = audit(DIST / f"{name}.audit.json", LOCK)
    if failure:
        sys.exit(f"release: {failure}")
    print(f"Audit: no known vulnerability in {LOCK.name}, in dist/{name}.audit.json")


def build() -> str:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel")
    return next(DIST.glob("mooring-*.tar.gz")).name.removeprefix("mooring-").removesuffix(".tar.gz")


def install_tools() -> None:
    venv.create(TOOLS, clear=True, symlinks=True, with_pip=True)
    lock = ROOT / "requirements-release.lock"
    run(
        str(TOOLS / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--requirement",
        str(lock),
    )


def install_wheel(wheel: Path) -> None:
    """Install the wheel and its locked dependencies alone, without pip and the tools for development."""
    venv.create(INSTALLED, clear=True, symlinks=True, with_pip=False)
    # pip takes no hashes of dependencies where the wheel itself has none; the versions are those of the lock.
    versions = [line.removesuffix(" \\") for line in LOCK.read_text().splitlines() if re.match(r"[A-Za-z0-9]", line)]
    constraints = INSTALLED / "constraints.txt"
    constraints.write_text("\n".join(versions) + "\n")
    python = str(INSTALLED / "bin" / "python")
    run(
        *(str(TOOLS / "bin" / "python"), "-m", "pip", "--python", python, "install", "--quiet"),
        *("--constraint", str(constraints), str(wheel)),
    )


def requirements(wheel: Path) -> set[str]:
    """Return the normalised names of the packages that the wheel requires here, extras left out."""
    with zipfile.ZipFile(wheel) as archive:
        file = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(file))
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return {canonicalize_name(each.name) for each in found if not each.marker or each.marker.evaluate({"extra": ""})}


def describe(sbom: Path, version: str, required: Set[str]) -> int:
    """Write the SBOM; return the number of its components. Exit where it lacks a requirement of the wheel."""
    run(
        *(str(TOOLS / "bin" / "cyclonedx-py"), "environment", "--output-reproducible", "--output-format", "JSON"),
        *("--pyproject", "pyproject.toml", "--mc-type", "application"),
        *("--output-file", str(sbom), str(INSTALLED / "bin" / "python")),
    )
    content = json.loads(sbom.read_text())
    # pyproject.toml has none: it is that of the package.
    content["metadata"]["component"]["version"] = version
    sbom.write_text(json.dumps(content, indent=2) + "\n")
    components = content["components"]
    described = {canonicalize_name(each["name"]) for each in (content["metadata"]["component"], *components)}
    missing = {"mooring", *required} - described
    if missing:
        sys.exit(f"release: the SBOM lacks {', '.join(sorted(missing))}")
    return len(components)


def audit(report: Path, lock: Path) -> str:
    """Compare the locked versions with the advisories known to PyPI; return the reason of a failure, empty if none."""
    report.unlink(missing_ok=True)
    answer = subprocess.run(
        [
            *(str(TOOLS / "bin" / "pip-audit"), "--requirement", str(lock), "--require-hashes", "--disable-pip"),
            *("--strict", "--progress-spinner", "off", "--format", "json", "--output", str(report)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        dependencies: list[dict[str, Any]] = json.loads(report.read_text())["dependencies"]
    except (OSError, ValueError, KeyError):
        reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        return (
            f"the locked versions were NOT audited, so nothing is known about their vulnerabilities: {reason}\n"
            "Run it where the advisory database (https://pypi.org/pypi/NAME/VERSION/json) can be reached."
        )
    found = [
        f"  {each['name']} {each['version']}: {known['id']} (fixed in: {', '.join(known['fix_versions']) or 'none'})"
        for each in dependencies
        for known in each.get("vulns", ())
    ]
    if found:
        return f"{len(found)} known vulnerabilities in {lock.name}:\n" + "\n".join(found)
    return f"the audit failed: {answer.stderr.strip()}" if answer.returncode or not dependencies else ""


def run(*command: str) -> None:
    finished = subprocess.run(command, cwd=ROOT, check=False)
    if finished.returncode:
        sys.exit(f"release: {' '.join(command[:4])} … failed with exit code {finished.returncode}")


if __name__ == "__main__":
    main()
