from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from sluice_ops.agent.__main__ import WRONG_USAGE, arguments_of, main
from sluice_ops.agent.host.facts import (
    ForeignAddressError,
    UnknownHostError,
    check_address,
    facts_from,
    facts_of,
)
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.site.site_file import load

REPOSITORY = Path(__file__).resolve().parents[4]


def with_words(*words: str):
    return arguments_of(["--host", "h9", "--address", "127.0.2.9", *words])


def test_an_unknown_host_is_refused_with_the_known_hosts() -> None:
    with pytest.raises(
        UnknownHostError,
        match=r"'h9' is not in site\.yaml, which knows h1, h2, h3: add it there, or give --address",
    ):
        facts_of("h9", load(REPOSITORY / "site.yaml"), Path("site.yaml"))


def test_a_host_outside_the_site_file_needs_a_full_description() -> None:
    with pytest.raises(UnknownHostError, match="--cpu and --memory missing"):
        facts_from(with_words())
    with pytest.raises(UnknownHostError, match="'4x' is not a size: write it like 700m or 2g"):
        facts_from(with_words("--cpu", "2", "--memory", "4x"))
    with pytest.raises(UnknownHostError, match=r"^--cpu: Input should be greater than 0$"):
        facts_from(with_words("--cpu", "0", "--memory", "4g"))
    with pytest.raises(UnknownHostError, match=r"^--host: 'h/9' is not a host's name: write small letters"):
        facts_from(arguments_of(["--host", "h/9", "--address", "127.0.2.9", "--cpu", "2", "--memory", "4g"]))
    assert facts_from(with_words("--cpu", "2", "--memory", "4g", "--labels", "fast,")).labels == ("fast",)


def test_slots_must_be_able_to_listen_at_the_hosts_address() -> None:
    here = facts_from(with_words("--cpu", "2", "--memory", "4g"))
    check_address(here)
    for elsewhere in ("203.0.113.7", "no-such-host.invalid"):
        with pytest.raises(ForeignAddressError, match=f"{elsewhere}.*correct the address in the site file"):
            check_address(here.model_copy(update={"address": elsewhere}))


@pytest.mark.usefixtures("restored_logging")
def test_stop_all_is_refused_for_a_host_that_never_had_an_agent_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    HostFolder(tmp_path, "h1").make()
    assert main(["--host", "h11", "--stop-all"]) == WRONG_USAGE
    assert capsys.readouterr().err == (
        "host 'h11' has no units to end: no agent of this host has run with SLUICE_HOME "
        f"{tmp_path}; agents of these hosts have: h1\n"
    )
    assert not (tmp_path / "hosts" / "h11").exists()


@pytest.fixture
def restored_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("restored_logging")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "name the site's endpoints file in SLUICE_ENDPOINTS"),
        ("{}", "endpoints.json: kafka: Field required"),
        ("[", "Invalid JSON"),
    ],
)
def test_an_agent_without_valid_endpoints_ends_with_the_reason(
    content: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.setenv("SLUICE_SITE", str(REPOSITORY / "site.yaml"))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    if content is not None:
        (tmp_path / "endpoints.json").write_text(content)
    assert main(["--host", "h1"]) == WRONG_USAGE
    assert message in capsys.readouterr().err
