"""Draws docs/scale/growth.svg from the output of `sluice simulate --json`.

Run `python docs/scale/plot.py RESULT.json…`.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PANELS: tuple[tuple[str, str, Callable[[dict[str, Any]], float]], ...] = (
    ("every slot planned (s)", "plan_seconds", lambda value: value),
    ("a loss answered, p99 (s)", "loss_to_assignment_p99_seconds", lambda value: value),
    ("fail-over (s)", "failover_seconds", lambda value: value),
    ("controller's peak (MiB)", "controller_peak_bytes", lambda value: value / 2**20),
)
WIDTH, HEIGHT, LEFT, TOP, ROOM = 230, 170, 45, 40, 62


def nice(most: float) -> float:
    """Return a round number above `most`, for the end of an axis."""
    step = 10 ** math.floor(math.log10(most))
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor >= most)


def panel(number: int, results: list[dict[str, Any]]) -> str:
    """Draw one figure over the number of hosts: measured as a line, its target as dashes."""
    title, key, scaled = PANELS[number]
    points = [(each["hosts"], scaled(each[key]), scaled(each["targets"][key]["target"])) for each in results]
    widest, highest = nice(max(hosts for hosts, *_ in points)), nice(max(max(both) for _, *both in points))

    def place(hosts: float, value: float) -> str:
        return f"{LEFT + hosts / widest * WIDTH:.1f},{TOP + HEIGHT * (1 - value / highest):.1f}"

    measured = " ".join(place(hosts, value) for hosts, value, _ in points)
    target = " ".join(place(hosts, aim) for hosts, _, aim in points)
    dots = "".join(
        f'<circle r="3" cx="{at.split(",")[0]}" cy="{at.split(",")[1]}"/>' for at in measured.split()
    )
    bottom = TOP + HEIGHT
    x, y = number % 2 * (LEFT + WIDTH + ROOM), number // 2 * (TOP + HEIGHT + ROOM)
    return f"""<g transform="translate({x},{y})">
<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{title}</text>
<path d="M{LEFT},{TOP}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="#888"/>
<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end">{highest:g}</text>
<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>
<text x="{LEFT + WIDTH}" y="{bottom + 16}" text-anchor="end">{widest:,.0f} hosts</text>
<polyline points="{target}" fill="none" stroke="#c60" stroke-dasharray="5 4"/>
<polyline points="{measured}" fill="none" stroke="#06c" stroke-width="2"/><g fill="#06c">{dots}</g></g>
"""


def main() -> None:
    """Draw all panels."""
    results = sorted(
        (json.loads(Path(name).read_text()) for name in sys.argv[1:]), key=lambda each: each["hosts"]
    )
    width, height = 2 * (LEFT + WIDTH + ROOM), 2 * (TOP + HEIGHT + ROOM)
    body = "".join(panel(number, results) for number in range(len(PANELS)))
    Path(__file__).with_name("growth.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}'
        f'<text x="{LEFT}" y="{height - 8}"><tspan fill="#06c">measured</tspan>, '
        '<tspan fill="#c60">target</tspan></text></svg>\n'
    )


if __name__ == "__main__":
    main()
