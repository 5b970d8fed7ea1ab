"""`sluice logs` prints files of this machine, and logs of other machines through the channel."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from simulation.memory import MemoryChannel
from typer.testing import CliRunner

from sluice_ops.channel import ChannelAwayError, NotAllowedError
from sluice_ops.main import app
from sluice_ops.model.assignment import UnitKind
from sluice_ops.model.exit_codes import AWAY, FAILED, WRONG_USAGE
from sluice_ops.model.logs import LogPart
from sluice_ops.queries.logs import LogAwayError
from sluice_ops.snapshot.view import View
from tests.unit.sluice_ops.cli.test_describe import host, unit, view


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    return CliRunner()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> View:
    now = view(host("h1", unit(UnitKind.DRIVER)))

    @contextmanager
    def opened() -> Iterator[MemoryChannel]:
        yield MemoryChannel()

    monkeypatch.setattr("sluice_ops.operations.connect.open_channel", opened)
    monkeypatch.setattr("sluice_ops.snapshot.view.read_view", lambda _channel: now)
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", lambda: now)
    return now


def away(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    @contextmanager
    def refused() -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr("sluice_ops.operations.connect.open_channel", refused)


def driver_log(home: Path, name: str, content: str) -> None:
    log = home / "hosts" / "h1" / "units" / name / "log"
    log.parent.mkdir(parents=True)
    log.write_text(content)


def test_logs_of_this_machine_are_listed_and_printed(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "kafka.log").write_text("one\ntwo\nthree\n")
    listed = runner.invoke(app, ["logs", "--json"])
    assert json.loads(listed.stdout) == {"logs": ["kafka"]}
    assert "Only the logs of this machine are listed" in listed.stderr
    output = runner.invoke(app, ["logs", "kafka", "-n", "2", "--json"]).stdout
    assert json.loads(output) == {"log": "kafka", "lines": ["two", "three"]}
    assert runner.invoke(app, ["logs", "kafka", "--json", "--follow"]).exit_code == WRONG_USAGE
    unknown = runner.invoke(app, ["logs", "kafak"])
    assert unknown.exit_code == WRONG_USAGE
    assert "there is no log of 'kafak' on this machine; logs: kafka" in unknown.stderr


@pytest.mark.usefixtures("seen")
def test_all_logs_of_the_site_are_listed(runner: CliRunner) -> None:
    assert json.loads(runner.invoke(app, ["logs", "--json"]).stdout) == {
        "logs": ["controller", "h1", "h1/driver-enrich-2"]
    }


@pytest.mark.usefixtures("seen")
def test_a_tiers_log_of_this_machine_is_its_drivers_file(runner: CliRunner, tmp_path: Path) -> None:
    driver_log(tmp_path, "driver-enrich-2", "a line\n")
    assert runner.invoke(app, ["logs", "enrich"]).stdout == "a line\n"


@pytest.mark.usefixtures("seen")
def test_a_log_of_another_machine_comes_through_its_agent(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = LogPart(text="a line\nanother\n", cut=True)
    monkeypatch.setattr("sluice_ops.queries.logs.read_log", lambda *_: part)
    done = runner.invoke(app, ["logs", "enrich"])
    assert (done.exit_code, done.stdout) == (0, "a line\nanother\n")
    assert "Only the last lines of h1/driver-enrich-2 fit into an answer" in done.stderr
    output = runner.invoke(app, ["logs", "driver-enrich-2", "--host", "h1", "--json"]).stdout
    assert json.loads(output) == {"log": "h1/driver-enrich-2", "lines": ["a line", "another"]}


@pytest.mark.usefixtures("seen")
def test_a_follower_retries_while_a_log_is_away(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = []
    answers = [
        LogAwayError("h1 is lost"),
        ChannelAwayError("no ZooKeeper"),
        LogPart(text="new\n", position=9),
    ]

    def after(_channel: object, _view: object, _place: object, position: int) -> LogPart:
        positions.append(position)
        if not answers:
            raise KeyboardInterrupt
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    first = LogPart(text="a line\n", position=7)
    monkeypatch.setattr("sluice_ops.queries.logs.read_log", lambda *_: first)
    monkeypatch.setattr("sluice_ops.queries.logs.read_log_after", after)
    monkeypatch.setattr("sluice_ops.cli.logs.FOLLOW_SECONDS", 0.0)
    done = runner.invoke(app, ["logs", "enrich", "-f"])
    assert (done.exit_code, done.stdout) == (0, "a line\nnew\n")
    assert done.stderr == "h1 is lost. The command retries until Ctrl-C.\n"
    assert positions == [7, 7, 7, 9]


@pytest.mark.usefixtures("seen")
def test_a_log_that_is_away_prints_its_last_known_lines(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> LogPart:
        message = "host h1 is lost"
        raise LogAwayError(message, ("driver-enrich-2: exit code 1",))

    monkeypatch.setattr("sluice_ops.queries.logs.read_log", lost)
    done = runner.invoke(app, ["logs", "enrich"])
    assert (done.exit_code, done.stdout, done.stderr) == (
        AWAY,
        "driver-enrich-2: exit code 1\n",
        "host h1 is lost\n",
    )


@pytest.mark.usefixtures("seen")
def test_an_unknown_log_names_those_of_the_site(runner: CliRunner) -> None:
    done = runner.invoke(app, ["logs", "enrihc"])
    assert done.exit_code == WRONG_USAGE
    assert "tiers: enrich; hosts: h1" in done.stderr


def test_without_zookeeper_a_tiers_newest_log_of_this_machine_is_shown(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away(monkeypatch, ChannelAwayError("ZooKeeper does not answer"))
    assert runner.invoke(app, ["logs", "enrich"]).exit_code == AWAY
    for number in (9, 10):
        driver_log(tmp_path, f"driver-enrich-{number}", f"of {number}\n")
    done = runner.invoke(app, ["logs", "enrich"])
    assert (done.exit_code, done.stdout) == (0, "of 10\n")
    assert "this is the newest log of enrich on this machine, h1/driver-enrich-10" in done.stderr


def test_a_reader_without_the_operators_credential_is_refused(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_log(tmp_path, "driver-enrich-1", "old\n")
    away(monkeypatch, NotAllowedError("this needs the role operator"))
    done = runner.invoke(app, ["logs", "enrich"])
    assert (done.exit_code, done.stdout, done.stderr) == (FAILED, "", "this needs the role operator\n")
