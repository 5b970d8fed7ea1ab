"""Joining by a token, with a real ZooKeeper and controller: once, in time by ZooKeeper's clock, on one machine, and through any crash."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel, access_lists, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.joining import ControllerKey
from sluice_ops.model.kafka_access import User
from sluice_ops.operations import joining
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers
from sluice_ops.site.files import write_private
from tests.integration.sluice_ops.controller import joiner

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[4]
SITE = ROOT / "site.yaml"
AN_HOUR = 3600.0
SLUICE = str(Path(sys.executable).with_name("sluice"))


class Machine:
    """A machine that joins: its own home, and its own copy of a token."""

    def __init__(self, home: Path, monkeypatch) -> None:
        self.home = home
        self.environment = {
            "SLUICE_HOME": str(home),
            "SLUICE_ENDPOINTS": str(home / "endpoints.json"),
            "SLUICE_SITE": str(SITE),
        }
        self._monkeypatch = monkeypatch
        home.mkdir()

    def hold(self, token, name="h.token"):
        """Have a copy of a token."""
        write_private(self.home / name, token.model_dump_json())
        return self.home / name

    def join(self, host, file):
        """Join and register, in this process."""
        for name, value in self.environment.items():
            self._monkeypatch.setenv(name, value)
        joiner.join(host, file)

    def run(self, *words):
        """Run a command here, to its end."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    def own(self, host):
        return HostFolder(self.home, host).credential()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Set machines up by name."""
    return lambda name: Machine(tmp_path / name, monkeypatch)


@contextmanager
def leading(place, home):
    """Have a controller lead."""
    home.mkdir()
    (home / "endpoints.json").write_text(place.model_dump_json())
    environment = {**os.environ, "SLUICE_HOME": str(home), "SLUICE_ENDPOINTS": str(home / "endpoints.json")}
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sluice_ops.controller", "--site", SITE],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def controller(place, admin, tmp_path):
    with leading(place, tmp_path / "controller") as process:
        until("the controller has published its key", lambda: admin.exists(paths.CONTROLLER_KEY))
        yield process


def until(what, holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, f"not in 60 s: {what}"
        time.sleep(0.1)


def is_registered(admin, host, machine):
    found = admin.read(paths.host(host), HostFacts)
    return found is not None and found.value.known_as == machine.own(host).known_as


@pytest.mark.usefixtures("controller")
def test_a_token_is_spent_when_its_host_is_registered(place, admin, tmp_path, machine, monkeypatch):
    folder, users = place.access.credentials, tmp_path / "kafka"
    write_private(users / "driver.properties", "password=x1\n")
    for role in (Role.DRIVER, Role.OPERATOR):
        write_private(tmp_path / "postgres" / role, f"*:*:*:sluice_{role}:x2\n")
    addresses = {
        "kafka": f"ssl://127.0.0.1:1?ca=/c/ca.pem&users={users}",
        "postgres": f"postgresql://db/x?users={tmp_path}/postgres",
    }
    place = place.model_copy(update=addresses)
    written = tmp_path / "the admin's.json"
    written.write_text(
        place.model_dump_json(exclude_none=True).replace('"airflow":{', '"airflow":{"password":"airflows",')
    )
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(written))  # as of an earlier version
    token, secret = joining.make(endpoints.load(), "h1", 60), place.needed(Role.AGENT).password
    assert access_lists.find_wrong(admin.kazoo) == []
    sealed = admin.kazoo.get(paths.joining("h1"))[0].decode()
    assert token.key not in sealed
    assert secret not in sealed

    for gone in (users, tmp_path / "postgres"):  # a bare host has the same paths, and nothing there
        shutil.rmtree(gone)
    admins = folder.rename(tmp_path / "the admin's")
    first = machine("first")
    file = first.hold(token)
    folder.write_text("nothing can be written below it")
    with pytest.raises(joining.JoinError, match="the token is still good for this machine"):
        first.join("h1", file)
    assert access_lists.find_wrong(admin.kazoo) == [], "with the claim and the answer"
    folder.unlink()
    first.join("h1", file)
    assert is_registered(admin, "h1", first)
    assert not admin.exists(paths.joining("h1"))
    assert not file.exists()
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == dict.fromkeys(
        joining.HELD, 0o600
    )
    assert endpoints.load() == place
    assert brokers(place.kafka_as(User.DRIVER)).client["sasl.password"] == "x1"
    assert {path.name for path in (tmp_path / "postgres").iterdir()} == {"driver"}
    assert place.postgres_as(Role.DRIVER).startswith("postgresql://sluice_driver@db/x?passfile=")
    assert "airflows" not in (first.home / "endpoints.json").read_text()
    assert [(each.entry.what.partition(",")[0], each.role) for each in trail_queue.queued(admin)] == [
        ("join h1 with its token", Role.CONTROLLER),
        ("token for h1", Role.OPERATOR),
    ]

    first.join("h1", file)  # its unit starts again with the same words
    first.join("h1", first.hold(token))
    assert not file.exists(), "what is spent is removed"
    second = machine("second")
    with pytest.raises(
        joining.JoinError,
        match=r"the token for h1 was used: h1 is registered, at 127.0.0.1, with another credential",
    ):
        second.join("h1", second.hold(token))
    shutil.rmtree(folder)
    admins.rename(folder)
    monkeypatch.undo()
    with pytest.raises(joining.JoinError, match=r"h1 is registered, at 127.0.0.1, and needs no token"):
        joining.make(
            place.model_copy(update={"kafka": "127.0.0.1:1", "postgres": "postgresql://x@db/x"}), "h1", 60
        )


@pytest.mark.usefixtures("controller")
def test_a_copied_token_is_refused_during_and_after_the_first_join(place, admin, machine):
    token, first, second = joining.make(place, "h1", 60), machine("first"), machine("second")
    file, copy = first.hold(token), second.hold(token)
    claimed = subprocess.run(
        [sys.executable, "-m", "tests.integration.sluice_ops.controller.joiner", "h1", file, "2"],
        env={**os.environ, **first.environment},
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert claimed.returncode == -signal.SIGKILL
    assert admin.exists(paths.claim("h1")), "it was killed after its claim"
    with pytest.raises(
        joining.JoinError, match=r"the token for h1 was used at \S+ \S+ UTC by another machine, which calls"
    ):
        second.join("h1", copy)
    with pytest.raises(joining.JoinError, match="is a token for h1, and this agent is to serve h2"):
        second.join("h2", copy)
    until("the controller has answered", lambda: admin.exists(paths.answer("h1")))
    with pytest.raises(joining.JoinError, match="by another machine"):
        second.join("h1", copy)
    assert not (second.home / "endpoints.json").exists()
    with Channel(
        place.zookeeper, token.credential
    ) as thief:  # with a copy of all that is in the channel, and of the token
        answer = thief.read(paths.answer("h1"), joining.Answer).value
        sealed = thief.read(paths.joining("h1"), joining.Sealed).value
        for data in (answer.data, sealed.data):
            for private in (
                joining.private_key(token.key, "answer to h1"),
                joining.private_key(second.own("h1").password, "answer to h1"),
            ):
                for purpose in ("answer to h1", "token for h1"):
                    with pytest.raises(joining.SealError):
                        joining.unseal(data, private, purpose)
    first.join("h1", file)
    assert is_registered(admin, "h1", first)
    with pytest.raises(joining.JoinError, match="h1 is registered"):
        second.join("h1", copy)


@pytest.mark.usefixtures("controller")
@pytest.mark.parametrize("shift", [-AN_HOUR, AN_HOUR])
def test_a_token_ends_by_zookeepers_clock_whatever_the_hosts_clock_says(
    place, admin, machine, monkeypatch, shift
):
    late, in_time = machine("late"), machine("in-time")
    expired = joining.make(place, "h1", 1.0)
    until(
        "the token has expired by ZooKeeper's clock",
        lambda: time.time() > admin.made_at(paths.joining("h1")) + 1.5,
    )
    good, real = joining.make(place, "h2", 60), time.time
    assert not admin.exists(paths.joining("h1")), (
        "what nobody has claimed in its time goes with the next token"
    )
    with pytest.raises(
        joining.JoinError, match="the token for h1 was used, has expired, or a later one has replaced it"
    ):
        late.join("h1", late.hold(expired))
    expired = joining.make(place, "h1", 1.0)
    until(
        "the token has expired by ZooKeeper's clock",
        lambda: time.time() > admin.made_at(paths.joining("h1")) + 1.5,
    )
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    with pytest.raises(
        joining.JoinError,
        match=r"h1 expired at \S+ \S+ UTC and was used at .* by ZooKeeper's clock: `sluice token",
    ):
        late.join("h1", late.hold(expired))
    assert not (late.home / "endpoints.json").exists()
    in_time.join("h2", in_time.hold(good))
    assert is_registered(admin, "h2", in_time)


@pytest.mark.usefixtures("controller")
def test_a_join_killed_at_any_step_succeeds_when_repeated(place, admin, machine):
    thief, killed = machine("thief"), 0
    while True:
        host, one = f"h{killed}", machine(f"one-{killed}")
        token = joining.make(place, host, 60)
        file = one.hold(token)
        done = one.run(
            sys.executable, "-m", "tests.integration.sluice_ops.controller.joiner", host, file, str(killed)
        )
        assert is_registered(admin, host, one) == (not admin.exists(paths.joining(host))), (
            "it is spent exactly when the host is registered"
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        if admin.exists(paths.claim(host)) or is_registered(admin, host, one):
            with pytest.raises(joining.JoinError, match=r"by another machine|h. is registered"):
                thief.join(host, thief.hold(token))
        one.join(host, file)
        assert is_registered(admin, host, one)
        assert not admin.exists(paths.joining(host))
        assert not file.exists()
        killed += 1
    assert int(done.stdout.splitlines()[-1]) == killed
    assert killed >= 8, (
        "own credential, claim, agent, driver, endpoints, live, registration, the token's file"
    )
    assert access_lists.find_wrong(admin.kazoo) == []


def test_without_a_controller_a_token_waits_and_a_later_one_replaces_it(
    place, admin, machine, monkeypatch, tmp_path
):
    with pytest.raises(joining.JoinError, match="no controller has published its key: start one"):
        joining.make(place, "h1", 60)
    with leading(place, tmp_path / "controller"):
        until("the controller has published its key", lambda: admin.exists(paths.CONTROLLER_KEY))
    first = machine("first")
    file = first.hold(joining.make(place, "h1", 60))
    monkeypatch.setattr(joining, "ANSWER_SECONDS", 1.0)
    with pytest.raises(
        joining.JoinError,
        match=r"no controller has answered h1 for 1 s: .* the token is still good for this machine",
    ):
        first.join("h1", file)
    replacing = joining.make(place, "h1", 60)
    with pytest.raises(
        joining.JoinError, match="the token for h1 was used, has expired, or a later one has replaced it"
    ):
        first.join("h1", file)
    monkeypatch.undo()
    with leading(place, tmp_path / "another controller"):
        first.join("h1", first.hold(replacing))
    assert is_registered(admin, "h1", first)
    assert admin.read(paths.CONTROLLER_KEY, ControllerKey) is not None


@pytest.mark.usefixtures("controller")
def test_an_agent_joins_by_cli_and_a_copied_token_gets_a_sentence(place, admin, machine):
    admins, first, second = machine("admins"), machine("first"), machine("second")
    (admins.home / "endpoints.json").write_text(place.model_dump_json())
    file, copy = first.home / "h1.token", second.home / "h1.token"
    assert "'../h1' is no valid host name" in admins.run(SLUICE, "token", file, "--host", "../h1").stderr
    told = admins.run(SLUICE, "token", file, "--host", "h1", "--for", "10m")
    assert (told.returncode, told.stderr) == (0, "")
    assert (
        f"{file} lets h1 join once within 10m by ZooKeeper's clock. On h1 run: sluice agent --host h1 --token-file h1.token"
        in told.stdout
    )
    shutil.copy(file, copy)
    with (first.home / "log").open("w") as log:
        agent = subprocess.Popen(
            [SLUICE, "agent", "--host", "h1", "--token-file", file],
            env={**os.environ, **first.environment},
            stdout=log,
            stderr=log,
        )
    try:
        until((first.home / "log").read_text, lambda: admin.exists(paths.live("h1")) and not file.exists())
        assert is_registered(admin, "h1", first)
        refused = second.run(SLUICE, "agent", "--host", "h1", "--token-file", copy)
        assert (refused.returncode, "the token for h1 was used: h1 is registered" in refused.stderr) == (
            2,
            True,
        ), refused.stderr
        again = admins.run(SLUICE, "token", file, "--host", "h1")
        assert "h1 is registered, at 127.0.1.1, and needs no token" in again.stderr
    finally:
        agent.terminate()
        agent.wait(20)
        first.run(sys.executable, "-m", "sluice_ops.agent", "--stop-all", "--host", "h1")
