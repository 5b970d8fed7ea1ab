"""The report joins the turns of a comparison and names missing results."""

import json
from pathlib import Path

import pytest

from tests.bench.peers import report


def write_result(folder: Path, question: str, system: str, turn: int, **more: object) -> None:
    (folder / f"peers-{question}-{system}-{turn}.json").write_text(
        json.dumps({"system": system, "turn": turn, **more})
    )


def deeds(gap: float) -> dict[str, dict[str, float]]:
    figures = (
        "took_seconds",
        "gap_seconds_with_preparation",
        "most_waited_seconds",
        "lost",
        "twice",
        "twice_after_the_reader",
    )
    return {"move": {**dict.fromkeys(figures, 1), "gap_seconds": gap}}


def test_the_report_has_the_median_of_the_turns_and_sluice_first(tmp_path: Path) -> None:
    for turn, gap in enumerate((0.1, 0.5, 0.2), start=1):
        write_result(tmp_path, "moves", "flink", turn, deeds=deeds(gap))
    write_result(tmp_path, "moves", "sluice", 1, deeds=deeds(0.05))
    lines = report.deeds_table(report.results_of(tmp_path, "moves")).splitlines()
    assert lines[2].startswith("| Sluice | move | 1 | 0.05 |")
    assert lines[3].startswith("| Flink 2.2.0 | move | 1 | 0.2 |")


def test_without_results_the_report_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.main() == 1
    assert "run .venv/bin/python -m pytest tests/bench/test_peers.py" in capsys.readouterr().err
