"""The notices of an instance, read from a metadata service that speaks IMDSv2."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sluice_ops.agent.watch.spot_notices import SpotNotices
from sluice_ops.local.ec2_metadata import MetadataService
from sluice_ops.model.ids import HostName

HOST = HostName("ec2-0a1b2c3d")
END, ADVICE = "2026-11-25T08:22:00Z", "2026-11-25T08:05:00Z"
END_SECONDS, ADVICE_SECONDS = 1795594920.0, 1795593900.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[MetadataService]:
    serving = MetadataService(tmp_path)
    yield serving
    serving.stop()


def give(folder: Path, name: str, **notice: str) -> None:
    file = folder / HOST / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(notice))


def test_an_instance_without_a_notice_reports_none(service: MetadataService) -> None:
    notices = SpotNotices(service.address(HOST))
    assert not notices.read()
    assert (notices.ends_at, notices.at_risk_since) == (None, None)


def test_a_spot_notice_and_a_recommendation_are_read(service: MetadataService, tmp_path: Path) -> None:
    notices = SpotNotices(service.address(HOST))
    give(tmp_path, "events/recommendations/rebalance", noticeTime=ADVICE)
    assert notices.read()
    assert (notices.ends_at, notices.at_risk_since) == (None, ADVICE_SECONDS)
    give(tmp_path, "spot/instance-action", action="terminate", time=END)
    assert notices.read()
    assert notices.ends_at == END_SECONDS
    assert not notices.read(), "the same notice is not new"


def test_a_notice_wakes_the_agent(service: MetadataService, tmp_path: Path) -> None:
    from threading import Event  # noqa: PLC0415
    from threading import enumerate as enumerate_threads  # noqa: PLC0415

    woken = Event()
    give(tmp_path, "spot/instance-action", action="terminate", time=END)
    notices = SpotNotices(service.address(HOST))
    notices.start(woken.set)
    assert woken.wait(5)
    notices.stop()
    assert "spot notices" not in {thread.name for thread in enumerate_threads()}


def test_an_expired_token_is_replaced(service: MetadataService, tmp_path: Path) -> None:
    notices = SpotNotices(service.address(HOST))
    notices._token = "expired"
    give(tmp_path, "spot/instance-action", action="terminate", time=END)
    assert notices.read()
    assert notices.ends_at == END_SECONDS


def test_a_silent_or_broken_service_keeps_the_last_notice(
    service: MetadataService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notices = SpotNotices(service.address(HOST))
    give(tmp_path, "spot/instance-action", action="terminate", time=END)
    notices.read()
    (tmp_path / HOST / "spot/instance-action").write_text("<html>")
    assert not notices.read()
    service.stop()
    assert not notices.read()
    assert not notices.read()
    assert notices.ends_at == END_SECONDS
    assert capsys.readouterr().out.count("spot notices cannot be read") == 2, "each cause is logged once"


def test_the_service_refuses_requests_without_a_token(service: MetadataService) -> None:
    port = int(service.address(HOST).rsplit(":", 1)[1].partition("/")[0])
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", f"/{HOST}/latest/meta-data/spot/instance-action")
    assert connection.getresponse().status == 401
    connection.close()


def test_the_service_keeps_its_port_across_a_restart(service: MetadataService, tmp_path: Path) -> None:
    service.stop()
    again = MetadataService(tmp_path)
    assert again.address(HOST) == service.address(HOST)
    again.stop()


def test_a_host_that_is_no_instance_asks_nobody() -> None:
    SpotNotices(None).start(lambda: pytest.fail("there is no notice"))
