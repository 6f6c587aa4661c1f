"""Draw the figures of the benchmark `scalability`:

    python -m benchmarks scalability --json | python scripts/plot_scalability.py > docs/scalability.svg

Both axes are logarithmic: a straight line that does not rise is a cost that does not grow.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence

Line = Sequence[tuple[float, float]]
WIDTH, HEIGHT, GAP = 420, 320, 60
COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774")


def main() -> None:
    figures: dict[str, float] = json.load(sys.stdin)["results"]["scalability"]
    sys.stdout.write(drawing([("nodes", lines(figures, "nodes")), ("tasks", lines(figures, "tasks"))]))


def lines(figures: Mapping[str, float], of: str) -> dict[str, Line]:
    """Microseconds per decision by kind of work, over the number of nodes or tasks."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, rate in figures.items():
        matched = re.fullmatch(rf"([a-z_]+)_(\d+)_{of}", name)
        if matched:
            found.setdefault(matched[1].replace("_", " "), []).append((float(matched[2]), 1e6 / rate))
    return {name: sorted(points) for name, points in found.items()}


def drawing(panels: Sequence[tuple[str, Mapping[str, Line]]]) -> str:
    width = len(panels) * (WIDTH + 2 * GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 2 * GAP}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (of, shown) in enumerate(panels):
        parts += panel(GAP + number * (WIDTH + 2 * GAP), GAP // 2, of, shown)
    return "\n".join([*parts, "</svg>", ""])


def panel(left: float, top: float, of: str, shown: Mapping[str, Line]) -> list[str]:
    sizes = [size for line in shown.values() for size, _ in line]
    costs = [cost for line in shown.values() for _, cost in line]
    across = scale(min(sizes), max(sizes), left, left + WIDTH)
    # At least two decades, so that noise does not look like growth.
    lowest, highest = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    highest = max(highest, lowest + 2)
    up = scale(10.0**lowest, 10.0**highest, top + HEIGHT, top)
    parts = [f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    for power in range(lowest, highest + 1):
        y = up(10.0**power)
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} µs</text>')
    parts += [
        f'<text x="{across(size):.1f}" y="{top + HEIGHT + 18}" text-anchor="middle">{size:,.0f}</text>'
        for size in sorted(set(sizes))
    ]
    parts.append(f'<text x="{left + WIDTH / 2}" y="{top + HEIGHT + 38}" text-anchor="middle">{of}</text>')
    coloured = sorted(zip(shown.items(), COLOURS, strict=False), key=lambda entry: entry[0][1][-1][1])
    lowest_label = math.inf
    for (name, line), colour in coloured:
        points = " ".join(f"{across(size):.1f},{up(cost):.1f}" for size, cost in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        # From the cheapest up: a name that would cover the one below it moves up.
        lowest_label = min(up(line[-1][1]) + 4, lowest_label - 13)
        parts.append(f'<text x="{left + WIDTH + 4}" y="{lowest_label:.1f}" fill="{colour}">{name}</text>')
    return parts


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """From a logarithmic range to places on the page."""
    span = math.log(high / low)
    return lambda value: start + (end - start) * math.log(value / low) / span


if __name__ == "__main__":
    main()
