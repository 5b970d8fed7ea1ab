"""The plot of the page about scale is drawn from the results beside it."""

import json
import re
from pathlib import Path

from docs.scale.plot import PANELS, plot

SCALE = Path(__file__).resolve().parents[3] / "docs" / "scale"


def titles(svg: Path) -> set[str]:
    return set(re.findall(r"<text [^>]*>([^<]*)</text>", svg.read_text()))


def test_the_plot_of_scale_has_each_figure_and_is_drawn_again_alike(tmp_path: Path) -> None:
    results = [json.loads(path.read_text()) for path in SCALE.glob("*.json")]
    plot(results, tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text()
    assert {title for title, *_ in PANELS} | {"measured", "target"} <= titles(tmp_path / "growth.svg")
    plot(list(reversed(results)), tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text() == drawn


def test_the_page_shows_the_plot_as_the_script_draws_it(tmp_path: Path) -> None:
    plot([json.loads(path.read_text()) for path in SCALE.glob("*.json")], tmp_path / "growth.svg")
    assert titles(SCALE / "growth.svg") == titles(tmp_path / "growth.svg")
