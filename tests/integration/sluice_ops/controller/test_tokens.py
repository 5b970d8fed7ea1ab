"""Join by a token, with a real ZooKeeper and controller.

A token works once, until it expires by ZooKeeper's clock, on one machine, and after any crash.
"""

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
    """A machine that joins, with its own home and its own copies of tokens."""

    def __init__(self, home: Path, monkeypatch) -> None:
        self.home = home
        self.environment = {
            "SLUICE_HOME": str(home),
            "SLUICE_ENDPOINTS": str(home / "endpoints.json"),
            "SLUICE_SITE": str(SITE),
        }
        self._monkeypatch = monkeypatch
        home.mkdir()

    def save_token(self, token, name="h.token"):
        """Write a copy of a token to the home; return the file."""
        write_private(self.home / name, token.model_dump_json())
        return self.home / name

    def join(self, host, file):
        """Join and register in this process."""
        for name, value in self.environment.items():
            self._monkeypatch.setenv(name, value)
        joiner.join(host, file)

    def run(self, *words):
        """Run a command on this machine until it ends."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    def credential(self, host):
        return HostFolder(self.home, host).credential()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that makes a machine by name."""
    return lambda name: Machine(tmp_path / name, monkeypatch)


@contextmanager
def running_controller(site_endpoints, home):
    """Run a leading controller."""
    home.mkdir()
    (home / "endpoints.json").write_text(site_endpoints.model_dump_json())
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
def controller(site_endpoints, admin, tmp_path):
    with running_controller(site_endpoints, tmp_path / "controller") as process:
        until("the controller has published its key", lambda: admin.exists(paths.CONTROLLER_KEY))
        yield process


def until(condition, check):
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, f"after 60 s still not true: {condition}"
        time.sleep(0.1)


def is_registered(admin, host, machine):
    versioned = admin.read(paths.host(host), HostFacts)
    return versioned is not None and versioned.value.known_as == machine.credential(host).known_as


@pytest.mark.usefixtures("controller")
def test_a_token_is_spent_when_its_host_is_registered(site_endpoints, admin, tmp_path, machine, monkeypatch):
    folder, users = site_endpoints.access.credentials, tmp_path / "kafka"
    write_private(users / "driver.properties", "password=x1\n")
    for role in (Role.DRIVER, Role.OPERATOR):
        write_private(tmp_path / "postgres" / role, f"*:*:*:sluice_{role}:x2\n")
    addresses = {
        "kafka": f"ssl://127.0.0.1:1?ca=/c/ca.pem&users={users}",
        "postgres": f"postgresql://db/x?users={tmp_path}/postgres",
    }
    site_endpoints = site_endpoints.model_copy(update=addresses)
    admin_file = tmp_path / "admin.json"
    admin_file.write_text(
        site_endpoints.model_dump_json(exclude_none=True).replace(
            '"airflow":{', '"airflow":{"password":"airflows",'
        )
    )
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(admin_file))  # as an earlier version wrote it
    token = joining.make(endpoints.load(), "h1", 60)
    secret = site_endpoints.required_credential(Role.AGENT).password
    assert access_lists.find_wrong(admin.kazoo) == []
    sealed = admin.kazoo.get(paths.joining("h1"))[0].decode()
    assert token.key not in sealed
    assert secret not in sealed

    for removed in (users, tmp_path / "postgres"):  # a new host has the same paths, without files
        shutil.rmtree(removed)
    admin_folder = folder.rename(tmp_path / "admin")
    first = machine("first")
    file = first.save_token(token)
    folder.write_text("a file where the folder should be")
    with pytest.raises(joining.JoinError, match="the token still works for this machine"):
        first.join("h1", file)
    assert access_lists.find_wrong(admin.kazoo) == [], "the claim and the answer have access lists too"
    folder.unlink()
    first.join("h1", file)
    assert is_registered(admin, "h1", first)
    assert not admin.exists(paths.joining("h1"))
    assert not file.exists()
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == dict.fromkeys(
        joining.HOST_ROLES, 0o600
    )
    assert endpoints.load() == site_endpoints
    assert brokers(site_endpoints.kafka_as(User.DRIVER)).client["sasl.password"] == "x1"
    assert {path.name for path in (tmp_path / "postgres").iterdir()} == {"driver"}
    assert site_endpoints.postgres_as(Role.DRIVER).startswith("postgresql://sluice_driver@db/x?passfile=")
    assert "airflows" not in (first.home / "endpoints.json").read_text()
    assert [(line.entry.what.partition(",")[0], line.role) for line in trail_queue.queued(admin)] == [
        ("join h1 with its token", Role.CONTROLLER),
        ("token for h1", Role.OPERATOR),
    ]

    first.join("h1", file)  # the unit restarts with the same arguments
    first.join("h1", first.save_token(token))
    assert not file.exists(), "a used token is removed"
    second = machine("second")
    with pytest.raises(
        joining.JoinError,
        match=r"the token for h1 was used: h1 is registered at 127.0.0.1, with another credential",
    ):
        second.join("h1", second.save_token(token))
    shutil.rmtree(folder)
    admin_folder.rename(folder)
    monkeypatch.undo()
    with pytest.raises(joining.JoinError, match=r"h1 is registered at 127.0.0.1 and needs no token"):
        joining.make(
            site_endpoints.model_copy(update={"kafka": "127.0.0.1:1", "postgres": "postgresql://x@db/x"}),
            "h1",
            60,
        )


@pytest.mark.usefixtures("controller")
def test_a_copied_token_is_refused_during_and_after_the_first_join(site_endpoints, admin, machine):
    token, first, second = joining.make(site_endpoints, "h1", 60), machine("first"), machine("second")
    file, copy = first.save_token(token), second.save_token(token)
    claimed = subprocess.run(
        [sys.executable, "-m", "tests.integration.sluice_ops.controller.joiner", "h1", file, "2"],
        env={**os.environ, **first.environment},
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert claimed.returncode == -signal.SIGKILL
    assert admin.exists(paths.claim("h1")), "the join was killed after its claim"
    with pytest.raises(
        joining.JoinError, match=r"the token for h1 was used at \S+ \S+ UTC by another machine, which calls"
    ):
        second.join("h1", copy)
    with pytest.raises(joining.JoinError, match="is a token for h1, but this agent is to serve h2"):
        second.join("h2", copy)
    until("the controller has answered", lambda: admin.exists(paths.answer("h1")))
    with pytest.raises(joining.JoinError, match="by another machine"):
        second.join("h1", copy)
    assert not (second.home / "endpoints.json").exists()
    with Channel(
        site_endpoints.zookeeper, token.credential
    ) as thief:  # with a copy of the token, and of all nodes in the channel
        answer = thief.read(paths.answer("h1"), joining.Answer).value
        sealed = thief.read(paths.joining("h1"), joining.Sealed).value
        for data in (answer.data, sealed.data):
            for private in (
                joining.private_key(token.key, "answer to h1"),
                joining.private_key(second.credential("h1").password, "answer to h1"),
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
    site_endpoints, admin, machine, monkeypatch, shift
):
    late, in_time = machine("late"), machine("in-time")
    expired = joining.make(site_endpoints, "h1", 1.0)
    until(
        "the token has expired by ZooKeeper's clock",
        lambda: time.time() > admin.made_at(paths.joining("h1")) + 1.5,
    )
    good, real = joining.make(site_endpoints, "h2", 60), time.time
    assert not admin.exists(paths.joining("h1")), "an expired, unclaimed token is removed with the next token"
    with pytest.raises(
        joining.JoinError, match="the token for h1 was used, has expired, or a later one has replaced it"
    ):
        late.join("h1", late.save_token(expired))
    expired = joining.make(site_endpoints, "h1", 1.0)
    until(
        "the token has expired by ZooKeeper's clock",
        lambda: time.time() > admin.made_at(paths.joining("h1")) + 1.5,
    )
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    with pytest.raises(
        joining.JoinError,
        match=r"h1 expired at \S+ \S+ UTC and was used at .* by ZooKeeper's clock: `sluice token",
    ):
        late.join("h1", late.save_token(expired))
    assert not (late.home / "endpoints.json").exists()
    in_time.join("h2", in_time.save_token(good))
    assert is_registered(admin, "h2", in_time)


@pytest.mark.usefixtures("controller")
def test_a_join_killed_at_any_step_succeeds_when_repeated(site_endpoints, admin, machine):
    thief, step = machine("thief"), 0
    while True:
        host, joining_machine = f"h{step}", machine(f"one-{step}")
        token = joining.make(site_endpoints, host, 60)
        file = joining_machine.save_token(token)
        done = joining_machine.run(
            sys.executable, "-m", "tests.integration.sluice_ops.controller.joiner", host, file, str(step)
        )
        assert is_registered(admin, host, joining_machine) == (not admin.exists(paths.joining(host))), (
            "the token is used exactly when the host is registered"
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        if admin.exists(paths.claim(host)) or is_registered(admin, host, joining_machine):
            with pytest.raises(joining.JoinError, match=r"by another machine|h. is registered"):
                thief.join(host, thief.save_token(token))
        joining_machine.join(host, file)
        assert is_registered(admin, host, joining_machine)
        assert not admin.exists(paths.joining(host))
        assert not file.exists()
        step += 1
    assert int(done.stdout.splitlines()[-1]) == step
    assert step >= 8, "own credential, claim, agent, driver, endpoints, live, registration, the token's file"
    assert access_lists.find_wrong(admin.kazoo) == []


def test_without_a_controller_a_token_waits_and_a_later_one_replaces_it(
    site_endpoints, admin, machine, monkeypatch, tmp_path
):
    with pytest.raises(joining.JoinError, match="no controller has published its key; start one"):
        joining.make(site_endpoints, "h1", 60)
    with running_controller(site_endpoints, tmp_path / "controller"):
        until("the controller has published its key", lambda: admin.exists(paths.CONTROLLER_KEY))
    first = machine("first")
    file = first.save_token(joining.make(site_endpoints, "h1", 60))
    monkeypatch.setattr(joining, "ANSWER_SECONDS", 1.0)
    with pytest.raises(
        joining.JoinError,
        match=r"no controller has answered h1 for 1 s; .* the token still works for this machine",
    ):
        first.join("h1", file)
    replacement = joining.make(site_endpoints, "h1", 60)
    with pytest.raises(
        joining.JoinError, match="the token for h1 was used, has expired, or a later one has replaced it"
    ):
        first.join("h1", file)
    monkeypatch.undo()
    with running_controller(site_endpoints, tmp_path / "another controller"):
        first.join("h1", first.save_token(replacement))
    assert is_registered(admin, "h1", first)
    assert admin.read(paths.CONTROLLER_KEY, ControllerKey) is not None


@pytest.mark.usefixtures("controller")
def test_an_agent_joins_by_cli_and_a_copied_token_is_refused(site_endpoints, admin, machine):
    admin_machine, first, second = machine("admin"), machine("first"), machine("second")
    (admin_machine.home / "endpoints.json").write_text(site_endpoints.model_dump_json())
    file, copy = first.home / "h1.token", second.home / "h1.token"
    assert (
        "'../h1' is no valid host name" in admin_machine.run(SLUICE, "token", file, "--host", "../h1").stderr
    )
    done = admin_machine.run(SLUICE, "token", file, "--host", "h1", "--for", "10m")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        f"{file} lets h1 join once within 10m by ZooKeeper's clock. On h1 run: "
        "sluice agent --host h1 --token-file h1.token" in done.stdout
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
        second_token = admin_machine.run(SLUICE, "token", file, "--host", "h1")
        assert "h1 is registered at 127.0.1.1 and needs no token" in second_token.stderr
    finally:
        agent.terminate()
        agent.wait(20)
        first.run(sys.executable, "-m", "sluice_ops.agent", "--stop-all", "--host", "h1")
