"""Where an installation is: folders, ports, secrets, and what is written down for others."""

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


def test_a_homes_port_base_is_kept_until_another_is_asked_for(
    where: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(where.home))
    monkeypatch.delenv("SLUICE_PORT_BASE", raising=False)
    endpoints_file.write(where, "hits", users=True, roles=True)
    assert current_layout().ports == where.ports
    monkeypatch.setenv("SLUICE_PORT_BASE", "41000")
    assert current_layout().ports == Ports.above(41000)


def test_a_base_that_was_kept_by_halves_is_refused_with_what_to_do(
    where: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(where.home))
    monkeypatch.delenv("SLUICE_PORT_BASE", raising=False)
    where.home.mkdir(parents=True, exist_ok=True)
    (where.home / "port-base").write_text("")
    with pytest.raises(
        PlatformError, match="port-base does not contain a number: write the last SLUICE_PORT_BASE"
    ):
        current_layout()


@pytest.mark.parametrize("base", ["80", "65530", "many", "-5", ""])
def test_a_base_that_cannot_be_used_is_refused_with_the_range(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_PORT_BASE", base)
    with pytest.raises(PlatformError, match=r"SLUICE_PORT_BASE=.*from 1024 to"):
        current_layout()


def test_the_socket_of_supervisord_is_short_enough_wherever_the_home_is(where: Layout) -> None:
    deep = replace(where, home=Path("/", *["a-rather-long-folder-name"] * 6))
    for place in (where, deep):
        assert len(os.fsencode(place.socket)) + len(".12345678") <= LONGEST_SOCKET_PATH or place is where
    assert deep.socket == replace(deep).socket
    assert deep.socket != replace(deep, home=deep.home / "other").socket


def test_damaged_secrets_are_named_and_not_made_anew(where: Layout) -> None:
    where.home.mkdir(parents=True, exist_ok=True)
    (where.home / "secrets.json").write_bytes(b'{"postgres": \xff')
    with pytest.raises(PlatformError, match=r"secrets\.json is damaged: restore it from a backup"):
        where.secrets()


def test_secrets_are_made_once_are_long_and_only_their_owner_reads_them(where: Layout) -> None:
    first = where.secrets()
    assert where.secrets() == first
    assert len({first.postgres, first.airflow, first.airflow_jwt, first.spark}) == 4
    assert all(len(word) >= 20 for word in (first.postgres, first.airflow, first.airflow_jwt, first.spark))
    assert stat.S_IMODE((where.home / "secrets.json").stat().st_mode) == 0o600


def test_a_secret_new_in_this_version_is_added_to_older_ones_once(where: Layout) -> None:
    before = where.secrets()
    (where.home / "secrets.json").write_text(before.model_dump_json(exclude={"spark"}))
    after = where.secrets()
    assert after.postgres == before.postgres
    assert where.secrets() == after


def test_what_is_written_for_others_is_what_they_read(where: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints_file.write(where, "hits", users=True, roles=True)
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(where.endpoints))
    found = endpoints.load()
    assert found.zookeeper == f"127.0.0.1:{where.ports.zookeeper}/sluice/hits"
    keys, written = where.secrets(), where.endpoints.read_text()
    assert not [
        name for name in ("postgres", "airflow", "airflow_operator") if getattr(keys, name) in written
    ]
    assert found.home == where.home
    assert stat.S_IMODE(where.endpoints.stat().st_mode) == 0o600
    assert {path.name for path in where.credentials.iterdir()} == set(KEPT)
    assert {stat.S_IMODE(path.stat().st_mode) for path in where.credentials.iterdir()} == {0o600}
    credentials = [found.required_credential(role) for role in KEPT]
    assert len({credential.password for credential in credentials if credential}) == len(KEPT)
    assert endpoints_file.write(where, "hits", users=True, roles=True) == found, (
        "a second start changes nothing"
    )


def test_a_home_that_cannot_be_written_is_named_with_the_way_out(where: Layout) -> None:
    blocked = where.home / "file"
    blocked.write_text("not a folder")
    with pytest.raises(PlatformError, match="SLUICE_HOME"):
        replace(where, home=blocked / "home").make_folders()
