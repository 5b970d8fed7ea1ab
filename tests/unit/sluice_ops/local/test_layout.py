"""Layout of an installation: folders, ports, secrets, and the endpoints file."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_ops.local.layout import LONGEST_SOCKET_PATH, Layout, Ports, current_layout
from sluice_ops.local.services import endpoints_file
from sluice_ops.model.access import KEPT
from sluice_ops.site import endpoints
from sluice_ops.site.installation import PlatformError


def test_two_bases_ten_apart_share_no_port() -> None:
    assert not set(Ports.above(27000).named().values()) & set(Ports.above(27010).named().values())


def test_a_homes_port_base_stays_until_another_is_set(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(layout.home))
    monkeypatch.delenv("SLUICE_PORT_BASE", raising=False)
    endpoints_file.write(layout, "hits", users=True, roles=True)
    assert current_layout().ports == layout.ports
    monkeypatch.setenv("SLUICE_PORT_BASE", "41000")
    assert current_layout().ports == Ports.above(41000)


def test_a_damaged_port_base_is_refused_with_the_next_step(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(layout.home))
    monkeypatch.delenv("SLUICE_PORT_BASE", raising=False)
    layout.home.mkdir(parents=True, exist_ok=True)
    (layout.home / "port-base").write_text("")
    with pytest.raises(
        PlatformError, match="port-base does not contain a number: write the last SLUICE_PORT_BASE"
    ):
        current_layout()


@pytest.mark.parametrize("base", ["80", "65530", "many", "-5", ""])
def test_an_invalid_port_base_is_refused_with_the_range(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_PORT_BASE", base)
    with pytest.raises(PlatformError, match=r"SLUICE_PORT_BASE=.*from 1024 to"):
        current_layout()


def test_the_socket_path_of_supervisord_is_short_for_every_home(layout: Layout) -> None:
    deep = replace(layout, home=Path("/", *["a-rather-long-folder-name"] * 6))
    for place in (layout, deep):
        assert len(os.fsencode(place.socket)) + len(".12345678") <= LONGEST_SOCKET_PATH or place is layout
    assert deep.socket == replace(deep).socket
    assert deep.socket != replace(deep, home=deep.home / "other").socket


def test_damaged_secrets_are_reported_and_not_replaced(layout: Layout) -> None:
    layout.home.mkdir(parents=True, exist_ok=True)
    (layout.home / "secrets.json").write_bytes(b'{"postgres": \xff')
    with pytest.raises(PlatformError, match=r"secrets\.json is damaged: restore it from a backup"):
        layout.secrets()


def test_secrets_are_created_once_long_and_private(layout: Layout) -> None:
    first = layout.secrets()
    assert layout.secrets() == first
    assert len({first.postgres, first.airflow, first.airflow_jwt, first.spark}) == 4
    assert all(len(word) >= 20 for word in (first.postgres, first.airflow, first.airflow_jwt, first.spark))
    assert stat.S_IMODE((layout.home / "secrets.json").stat().st_mode) == 0o600


def test_a_secret_new_in_this_version_is_added_to_older_ones_once(layout: Layout) -> None:
    before = layout.secrets()
    (layout.home / "secrets.json").write_text(before.model_dump_json(exclude={"spark"}))
    after = layout.secrets()
    assert after.postgres == before.postgres
    assert layout.secrets() == after


def test_endpoints_are_read_as_they_were_written(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints_file.write(layout, "hits", users=True, roles=True)
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(layout.endpoints))
    loaded = endpoints.load()
    assert loaded.zookeeper == f"127.0.0.1:{layout.ports.zookeeper}/sluice/hits"
    keys, written = layout.secrets(), layout.endpoints.read_text()
    assert not [
        name for name in ("postgres", "airflow", "airflow_operator") if getattr(keys, name) in written
    ]
    assert loaded.home == layout.home
    assert stat.S_IMODE(layout.endpoints.stat().st_mode) == 0o600
    assert {path.name for path in layout.credentials.iterdir()} == set(KEPT)
    assert {stat.S_IMODE(path.stat().st_mode) for path in layout.credentials.iterdir()} == {0o600}
    credentials = [loaded.required_credential(role) for role in KEPT]
    assert len({credential.password for credential in credentials if credential}) == len(KEPT)
    assert endpoints_file.write(layout, "hits", users=True, roles=True) == loaded, (
        "a second start changes nothing"
    )


def test_a_home_that_cannot_be_written_is_refused_with_the_setting(layout: Layout) -> None:
    blocked = layout.home / "file"
    blocked.write_text("not a folder")
    with pytest.raises(PlatformError, match="SLUICE_HOME"):
        replace(layout, home=blocked / "home").make_folders()
