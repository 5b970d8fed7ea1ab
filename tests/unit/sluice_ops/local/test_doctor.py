"""The doctor's findings before anything runs, and their advice."""

import socket
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from simulation.ec2 import instance
from simulation.memory import MemoryChannel
from simulation.world import tier

from sluice_ops.cloud import ec2
from sluice_ops.local import doctor, lifecycle, ports
from sluice_ops.local.doctor import Verdict
from sluice_ops.local.layout import Layout
from sluice_ops.model import paths
from sluice_ops.model.change import MaintenanceLock
from sluice_ops.model.ids import ChangeId, HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.tier import Mode
from sluice_ops.site.installation import PlatformError
from tests.lab import ROOT


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def findings_of(layout: Layout, thing: str) -> list[doctor.Finding]:
    return [finding for finding in doctor.examine(layout) if finding.thing == thing]


def test_a_taken_port_is_reported_with_its_process_and_the_next_step(layout: Layout) -> None:
    with socket.create_server(("127.0.0.1", layout.ports.kafka)):
        sentences = ports.taken(layout.ports.named())
        assert [
            sentence
            for sentence in sentences
            if f"port {layout.ports.kafka} (kafka) is taken by" in sentence and "pid" in sentence
        ]
        assert [
            finding
            for finding in doctor.examine(layout)
            if finding.thing == "ports" and "SLUICE_PORT_BASE" in finding.advice
        ]


def test_a_wrong_key_in_the_site_file_is_named_by_its_path(layout: Layout, tmp_path: Path) -> None:
    site_file = tmp_path / "site.yaml"
    site_file.write_text((ROOT / "site.yaml").read_text().replace("cpu: 8", "cpus: 8", 1))
    findings = findings_of(replace(layout, site=site_file), "site")
    assert findings[0].verdict is Verdict.BAD
    assert any("hosts.0.capacity.cpus" in finding.sentence for finding in findings)


def test_a_failed_check_is_a_finding_and_other_checks_still_run(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _memory(_layout: Layout) -> list[doctor.Finding]:
        raise subprocess.TimeoutExpired(["publish"], 60)

    monkeypatch.setattr(doctor, "_memory", _memory)
    findings = {finding.thing: finding for finding in doctor.examine(layout)}
    assert findings["memory"].verdict is Verdict.BAD
    assert findings["memory"].sentence.startswith("cannot be checked: Command '['publish']' timed out")
    assert "disk" in findings


def test_a_full_disk_is_bad_and_nothing_is_started_on_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: Usage(10**12, 10**12, 10 * 1024 * 1024))
    assert findings_of(layout, "disk")[0].verdict is Verdict.BAD
    with pytest.raises(PlatformError, match=r"10 MiB are free at .*SLUICE_HOME"):
        lifecycle.up(layout, lambda _timing: None)


def test_a_project_without_dag_files_is_not_started(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlatformError, match=r"dags has no DAG file.*sluice_airflow\.dags import runbooks"):
        lifecycle.up(layout, lambda _timing: None)


def test_a_second_start_at_the_same_time_is_refused(layout: Layout) -> None:
    with (
        lifecycle.locked(layout),
        pytest.raises(PlatformError, match="another `sluice up` or `sluice down` is running"),
        lifecycle.locked(layout),
    ):
        pytest.fail("both were let in")


def test_a_folder_that_is_not_a_home_is_not_removed(layout: Layout, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(PlatformError, match="does not look like a home of Sluice"):
        lifecycle.clean(replace(layout, home=precious))
    assert (precious / "thesis.txt").exists()


def test_a_stopped_platform_can_be_stopped_and_removed_twice(layout: Layout) -> None:
    layout.secrets()
    assert lifecycle.down(layout) == []
    assert lifecycle.down(layout) == []
    assert lifecycle.clean(layout)
    assert not lifecycle.clean(layout)


def test_idle_instances_are_named_with_the_command_that_ends_them(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = MemoryChannel()
    placed = Placement(driver=HostName("h1"), slots=(HostName("ec2-00000001"),))
    spec = IncarnationSpec(
        tier=TierName("enrich"), incarnation=Incarnation(2), placement=placed, reason="burst", created_at=1.0
    )
    channel.put(paths.tier("enrich"), tier("enrich", Mode.BATCH, 0))
    channel.put(paths.owner(TierName("enrich")), OwnerRecord(owner=Incarnation(2)))
    channel.put(paths.incarnation(TierName("enrich"), 2), spec)
    channel.put(paths.LOCK, MaintenanceLock(change=ChangeId("at-work"), by="anna", since=1.0))
    tokens = ("done", "deleted", "at-work")
    instances = [instance(f"i-{number:016d}", token) for number, token in enumerate(tokens, start=1)]
    monkeypatch.setattr(ec2, "the_cloud", lambda: SimpleNamespace(instances=lambda: instances))
    monkeypatch.setattr(doctor, "Channel", lambda _zookeeper: nullcontext(channel))
    monkeypatch.setattr(doctor, "known_endpoints", lambda _layout: SimpleNamespace(zookeeper=""))
    idle, total = doctor._instances(layout)
    assert (idle.verdict, total.verdict) == (Verdict.NOTE, Verdict.OK)
    assert (
        idle.sentence
        == "i-0000000000000002 (ec2-00000002) is running and runs no tier; it was launched by deleted"
    )
    assert "`sluice leave`" in idle.advice
    assert total.sentence == "3 exist, 1 run a tier"
