"""Control groups of the processes under supervisord; folders stand in for the kernel's."""

import os
import subprocess
from pathlib import Path

import pytest

from sluice_ops.agent.limits.control_groups import installation_group
from sluice_ops.local.layout import Layout
from sluice_ops.local.start.priority import BACKGROUND, SERVICES, in_group, niced, prepare, remove

CORES = os.cpu_count() or 1


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    (tmp_path / "cpu").mkdir()
    path = tmp_path / "mounts"
    path.write_text(
        f"cgroup {tmp_path}/cpu cgroup rw,cpu 0 0\ncgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
    )
    return path


def group(mounts: Path, layout: Layout, name: str) -> Path:
    return mounts.parent / "cpu" / f"{installation_group(layout.home)}.{name}"


def test_services_weigh_as_all_units_and_the_background_a_quarter(layout: Layout, mounts: Path) -> None:
    prepare(layout, mounts)
    prepare(layout, mounts)
    assert int((group(mounts, layout, SERVICES) / "cpu.shares").read_text()) == 1024 * CORES
    assert int((group(mounts, layout, BACKGROUND) / "cpu.shares").read_text()) == 256 * CORES


def test_a_command_joins_its_group_and_runs_unchanged(layout: Layout, mounts: Path) -> None:
    prepare(layout, mounts)
    joined = group(mounts, layout, SERVICES) / "cgroup.procs"
    joined.touch()
    output = subprocess.run(
        in_group(layout, SERVICES, ("echo", "a  b", "$$"), mounts), capture_output=True, text=True, check=True
    ).stdout
    assert output == "a  b $$\n"
    assert joined.read_text().strip().isdigit()


def test_a_command_without_a_group_still_starts(layout: Layout, mounts: Path) -> None:
    prepare(layout, mounts)
    assert in_group(layout, SERVICES, ("true",), mounts) == ("true",)
    nowhere = mounts.with_name("none")
    nowhere.write_text("tmpfs /run tmpfs rw 0 0\n")
    prepare(layout, nowhere)
    assert in_group(layout, SERVICES, ("true",), nowhere) == ("true",)


def test_a_command_of_low_priority_is_niced_too(layout: Layout) -> None:
    assert niced(layout, ("true",), 5)[-4:] == ("nice", "-n", "5", "true")
    assert niced(layout, ("true",), 0) == ("true",)


def test_only_empty_groups_are_removed(layout: Layout, mounts: Path) -> None:
    prepare(layout, mounts)
    (
        group(mounts, layout, SERVICES) / "cpu.shares"
    ).unlink()  # the kernel's files do not keep a group from its removal
    remove(layout, mounts)
    assert not group(mounts, layout, SERVICES).exists()
    assert group(mounts, layout, BACKGROUND).exists()
