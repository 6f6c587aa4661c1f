"""Write the screenshots of the tutorial "size your cluster": `python scripts/report_screenshots.py`.

Needs Chromium. Each card of a report is found by its title, so that the pictures follow the page.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from mooring.simulation.engine import replay
from mooring.simulation.inputs.scenario_files.loading import read_scenario, scenario_of
from mooring.simulation.outputs.report.html import render
from mooring.simulation.outputs.report.series import report_data

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "examples" / "size-your-cluster"
PICTURES = ROOT / "docs" / "tutorial" / "images"
SHOTS = (
    ("today", "today-overview", ("Utilisation", "Jobs"), 900),
    ("today", "today-schedule", ("Schedule",), 600),
    ("packed", "packed-overview", ("Utilisation", "Jobs"), 900),
)
"""Scenario, picture, the cards that it shows, and its height."""
_CHROMIUM = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    pages: dict[str, str] = {}
    for scenario, picture, cards, height in SHOTS:
        if scenario not in pages:
            pages[scenario] = _page(scenario)
        _shoot(_only(pages[scenario], cards), PICTURES / f"{picture}.png", height)


def _page(name: str) -> str:
    path = SCENARIOS / f"{name}.yaml"
    scenario = scenario_of(read_scenario(path), path.parent)
    return render(report_data(replay(scenario), scenario, path.name))


def _only(page: str, cards: tuple[str, ...]) -> str:
    """Return the page without other cards; the heading and the tiles stay if the first chart is shown."""
    hide = f"""<script>
for (const card of document.querySelectorAll(".card"))
  if (!{list(cards)}.includes(card.querySelector("h2").textContent)) card.remove();
for (const id of {["foot"] if "Utilisation" in cards else ["foot", "title", "sub", "tiles"]})
  document.getElementById(id).remove();
</script></body>"""
    return page.replace("</body>", hide)


def _shoot(page: str, picture: Path, height: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        command = (*_CHROMIUM, f"--window-size=1000,{height}", f"--screenshot={picture}", path.as_uri())
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    sys.stdout.write(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
