"""The logs of slots and drivers are found by their names, also after the unit has ended."""

from pathlib import Path

import pytest

from sluice_ops.agent.host.store import LOG_BYTES, HostFolder, UnitFolder
from sluice_ops.model.ids import UnitId
from sluice_ops.queries.unit_logs import tail, unit_logs


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    folder = HostFolder(tmp_path, "h1")
    folder.make()
    return folder


def started(host: HostFolder, unit: str, text: str) -> UnitFolder:
    folder = host.unit(UnitId(unit))
    folder.make()
    folder.log.write_text(text)
    return folder


def test_a_unit_is_found_by_its_host_while_it_runs_and_after_its_end(
    host: HostFolder, tmp_path: Path
) -> None:
    driver = started(host, "driver-entry-3", "first\nlast\n")
    assert unit_logs(tmp_path) == {"h1/driver-entry-3": driver.log}
    driver.remove()
    assert list(tail(unit_logs(tmp_path)["h1/driver-entry-3"], 1)) == ["last\n"]


def test_a_unit_that_was_started_again_has_its_new_log(host: HostFolder, tmp_path: Path) -> None:
    started(host, "driver-entry-3", "old\n").remove()
    started(host, "driver-entry-3", "new\n")
    assert list(tail(unit_logs(tmp_path)["h1/driver-entry-3"], 5)) == ["new\n"]


def test_without_units_there_are_no_logs(tmp_path: Path) -> None:
    assert unit_logs(tmp_path) == {}


@pytest.mark.parametrize(
    ("lines", "shown"),
    [(0, []), (1, ["last\n"]), (2, ["first\n", "last\n"]), (3, ["2\n", "first\n", "last\n"])],
)
def test_missing_lines_come_from_the_end_of_the_rotated_log(
    host: HostFolder, lines: int, shown: list[str]
) -> None:
    driver = started(host, "driver-entry-3", "first\nlast\n")
    (driver.path / "log.1").write_text("1\n2\n")
    assert list(tail(driver.log, lines)) == shown


def test_after_the_agent_moved_a_long_log_its_end_is_still_shown(host: HostFolder) -> None:
    driver = started(host, "driver-entry-3", "x" * LOG_BYTES + "\nnewest\n")
    driver.cap_log()
    assert driver.log.read_text() == ""
    assert list(tail(driver.log, 1)) == ["newest\n"]


def test_following_a_log_goes_on_with_new_lines_after_the_rotated_ones(host: HostFolder) -> None:
    driver = started(host, "driver-entry-3", "first\n")
    (driver.path / "log.1").write_text("older\n")
    shown = tail(driver.log, 5, follow=True)
    assert [next(shown), next(shown)] == ["older\n", "first\n"]
    with driver.log.open("a") as file:
        file.write("new\n")
    assert next(shown) == "new\n"
