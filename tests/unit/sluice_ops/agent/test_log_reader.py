"""An agent reads the logs of its host's units, its own, and no other file."""

from pathlib import Path

import pytest

from sluice_ops.agent.host.log_reader import LogReader
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.model.ids import UnitId
from sluice_ops.model.logs import LogPart, LogRequest
from sluice_ops.process.logs import OWN_EVENTS, OwnLog

DRIVER = "driver-entry-3"


@pytest.fixture
def folder(tmp_path: Path) -> HostFolder:
    folder = HostFolder(tmp_path, "h1")
    folder.make()
    return folder


@pytest.fixture
def reader(folder: HostFolder) -> LogReader:
    own = OwnLog()
    for number in range(OWN_EVENTS + 5):
        assert own.remember(None, "info", f"event {number}") == f"event {number}"
    return LogReader(folder.path, own)


def wanted(log: str | None, **fields: int) -> LogRequest:
    return LogRequest(to="h1", key="", log=log, **fields)


def test_the_log_of_a_unit_is_read_and_followed(folder: HostFolder, reader: LogReader) -> None:
    unit = folder.unit(UnitId(DRIVER))
    unit.make()
    unit.log.write_text("first\nlast\n")
    part = reader(wanted(DRIVER, lines=1))
    assert part == LogPart(text="last\n", position=11)
    with unit.log.open("a") as file:
        file.write("new\n")
    assert reader(wanted(DRIVER, after=part.position)) == LogPart(text="new\n", position=15)
    unit.remove()
    assert reader(wanted(DRIVER, lines=1)).text == "new\n", "also after its end"


@pytest.mark.parametrize(
    "name", ["../credential", "credential", "/etc/passwd", "driver-entry-3/../../credential", ""]
)
def test_no_other_file_can_be_named(folder: HostFolder, reader: LogReader, name: str) -> None:
    folder.credential()
    part = reader(wanted(name, lines=5))
    assert (part.text, part.missing) == (
        "",
        "it has not started, or 20 others ended since; logs there: none",
    )


def test_a_link_in_the_place_of_a_log_is_not_followed(
    folder: HostFolder, reader: LogReader, tmp_path: Path
) -> None:
    (tmp_path / "secrets.json").write_text("a secret\n")
    unit = folder.unit(UnitId(DRIVER))
    unit.make()
    unit.log.symlink_to(tmp_path / "secrets.json")
    assert reader(wanted(DRIVER, lines=5)).text == ""


def test_the_agents_own_log_has_its_last_events(reader: LogReader) -> None:
    end = OWN_EVENTS + 5
    assert reader(wanted(None, lines=2)) == LogPart(text=f"event {end - 2}\nevent {end - 1}\n", position=end)
    assert reader(wanted(None, lines=0)).text == ""
    assert reader(wanted(None, after=end - 1)).text == f"event {end - 1}\n"
    assert reader(wanted(None, after=end)).text == ""
    assert reader(wanted(None, after=0)).text.startswith("event 5\n"), "older ones are gone"


def test_a_position_of_an_earlier_process_begins_again(reader: LogReader) -> None:
    assert reader(wanted(None, after=OWN_EVENTS + 99)).text.startswith("event 5\n")
