"""The plots of pages are drawn from the results beside them."""

import json
import re
from pathlib import Path

from docs.scale.plot import PANELS, plot
from docs.spike import plot as spike
from tests.scenarios.timeline import USES

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


def test_the_plot_of_a_spike_has_the_use_of_each_slot(tmp_path: Path) -> None:
    rows = range(5)
    record = {
        "at": [60 * row for row in rows],
        **{name: [10 * row for row in rows] for name in ("fed", "rate_in", "rate_out", "lag")},
        "slots": {use: [1 for _ in rows] for use in USES},
        "events": [{"at": 0.0, "event": "the spike begins: 60 records/s"}, {"at": 9.0, "event": "another"}],
    }
    (tmp_path / "spike.json").write_text(json.dumps(record))
    spike.plot(tmp_path / "spike.json", tmp_path / "spike.svg")
    assert {*USES, "fed", "records/s", "records that wait", "slots"} <= titles(tmp_path / "spike.svg")
    assert {*spike.USES} == {*USES}
