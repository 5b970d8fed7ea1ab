"""The groups of what runs under supervisord, in folders that stand in for the kernel's."""

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


def group(mounts: Path, where: Layout, name: str) -> Path:
    return mounts.parent / "cpu" / f"{installation_group(where.home)}.{name}"


def test_services_weigh_what_all_units_do_and_the_background_a_quarter(where: Layout, mounts: Path) -> None:
    prepare(where, mounts)
    prepare(where, mounts)
    assert int((group(mounts, where, SERVICES) / "cpu.shares").read_text()) == 1024 * CORES
    assert int((group(mounts, where, BACKGROUND) / "cpu.shares").read_text()) == 256 * CORES


def test_a_command_joins_its_group_and_is_itself_after_that(where: Layout, mounts: Path) -> None:
    prepare(where, mounts)
    joined = group(mounts, where, SERVICES) / "cgroup.procs"
    joined.touch()
    said = subprocess.run(
        in_group(where, SERVICES, ("echo", "a  b", "$$"), mounts), capture_output=True, text=True, check=True
    ).stdout
    assert said == "a  b $$\n"
    assert joined.read_text().strip().isdigit()


def test_a_group_that_cannot_be_joined_is_no_reason_not_to_start(where: Layout, mounts: Path) -> None:
    prepare(where, mounts)
    assert in_group(where, SERVICES, ("true",), mounts) == ("true",)
    nowhere = mounts.with_name("none")
    nowhere.write_text("tmpfs /run tmpfs rw 0 0\n")
    prepare(where, nowhere)
    assert in_group(where, SERVICES, ("true",), nowhere) == ("true",)


def test_what_gives_way_is_niced_too(where: Layout) -> None:
    assert niced(where, ("true",), 5)[-4:] == ("nice", "-n", "5", "true")
    assert niced(where, ("true",), 0) == ("true",)


def test_empty_groups_go_away(where: Layout, mounts: Path) -> None:
    prepare(where, mounts)
    (group(mounts, where, SERVICES) / "cpu.shares").unlink()  # the kernel's files do not keep a folder
    remove(where, mounts)
    assert not group(mounts, where, SERVICES).exists()
    assert group(mounts, where, BACKGROUND).exists()
