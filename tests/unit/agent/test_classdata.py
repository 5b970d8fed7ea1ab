from pathlib import Path

from ops.agent.classdata import ENDED_WELL, archive, harvest, options
from ops.model.ids import UnitId

A, B = UnitId("slot-entry-1-0"), UnitId("slot-enrich-1-0")


def recorded_by(words: list[str]) -> Path | None:
    found = [word.partition("=")[2] for word in words if word.startswith("-XX:AOTCacheOutput=")]
    return Path(found[0]) if found else None


def test_one_worker_records_and_all_later_ones_use_it(tmp_path: Path) -> None:
    kept = archive(tmp_path, Path("/bin/sh"), Path("/bin"))
    recording = recorded_by(options(kept, "h1", A))
    assert recording is not None
    assert recorded_by(options(kept, "h1", B)) is None, "one at a time"
    recording.write_text("class data")
    harvest(tmp_path, "h1", B, ENDED_WELL)
    assert not kept.exists(), "that was another one"
    harvest(tmp_path, "h1", A, ENDED_WELL)
    assert kept.read_text() == "class data"
    assert f"-XX:AOTCache={kept}" in options(kept, "h2", A)


def test_what_a_killed_worker_has_recorded_is_thrown_away_and_another_one_tries(tmp_path: Path) -> None:
    kept = archive(tmp_path, Path("/bin/sh"), Path("/bin"))
    recording = recorded_by(options(kept, "h1", A))
    assert recording is not None
    recording.write_text("half")
    harvest(tmp_path, "h1", A, 128 + 9)
    assert not kept.exists()
    assert recorded_by(options(kept, "h1", B)) is not None


def test_a_marker_that_another_agent_takes_away_meanwhile_is_its_own_affair(tmp_path: Path) -> None:
    kept = archive(tmp_path, Path("/bin/sh"), Path("/bin"))
    options(kept, "h1", A)
    (kept.parent / "gone.recording").symlink_to(tmp_path / "taken-away")
    harvest(tmp_path, "h1", A, 1)
    assert recorded_by(options(kept, "h1", B)) is not None


def test_another_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    assert archive(tmp_path, Path("/bin/sh"), Path("/bin")) != archive(tmp_path, Path("/bin/ls"), Path("/bin"))
