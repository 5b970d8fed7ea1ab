"""Access by role on a real ZooKeeper: what the table allows goes through, what it does not is refused, and an open tree is closed."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ops import endpoints, joining
from ops.channel import Channel, ChannelAwayError, NotAllowedError, Write, tree
from ops.model import paths
from ops.model.access import PROCESSES, TABLE, Role, parent
from ops.model.assignment import Assignment, Observed
from ops.model.incarnation import OwnerRecord, TierWanted
from ops.model.status import ControllerStatus
from ops.platform import credentials

pytestmark = pytest.mark.timeout(120)
SITE = Path(__file__).parents[3] / "site.yaml"


@pytest.fixture
def place(zookeeper, tmp_path, request):
    """An endpoints file of the test's own, with credentials for all."""
    away = "127.0.0.1:1"
    return endpoints.Endpoints(
        kafka=away,
        zookeeper=f"{zookeeper}/{request.node.name[:40]}",
        postgres=f"postgresql://x@{away}/x",
        airflow=endpoints.AirflowEndpoint(url=f"http://{away}", user="x", password="x"),
        spark=f"spark://{away}",
        home=tmp_path,
        access=credentials.make(tmp_path / "credentials"),
    )


@pytest.fixture
def admin(place):
    with Channel(place.zookeeper, place.needed(Role.ADMIN)) as channel:
        tree.apply(channel.kazoo)
        yield channel


def connected(place, role):
    return Channel(place.zookeeper, place.needed(role))


def test_each_role_may_do_what_the_table_says_and_nothing_else(place, admin):
    for row in TABLE:
        admin.kazoo.ensure_path(row.replace("*", "x"))
    assert tree.other(admin.kazoo) == []
    assert tree.unknown(admin.kazoo) == []
    wrong = []
    for role in set(Role) - {Role.ADMIN}:
        with connected(place, role) as channel:
            for row, granted in TABLE.items():
                path = row.replace("*", "x")
                below = f"{path.rstrip('/')}/made-by-{role}"
                for right, act in (
                    ("write", lambda path=path: channel.kazoo.set(path, b"")),
                    ("create", lambda below=below: channel.kazoo.create(below)),
                    ("delete", lambda below=below: channel.kazoo.delete(below)),
                ):
                    if right == "delete" and not admin.kazoo.exists(below):
                        admin.kazoo.create(below)
                    if went_through(act) != (role in getattr(granted, right)):
                        wrong.append((role, right, path))
                if admin.kazoo.exists(below):
                    admin.kazoo.delete(below)
    assert wrong == []


def went_through(act):
    try:
        act()
    except NoAuthError:
        return False
    return True


def test_a_wrong_role_is_told_which_one_it_takes_and_where_credentials_are_looked_for(place, admin):
    admin.put(paths.assignment("h1"), Assignment())
    folder = place.access.credentials
    with connected(place, Role.AGENT) as agent:
        with pytest.raises(NotAllowedError) as refused:
            agent.put(paths.assignment("h1"), Assignment(epoch=7))
        assert str(refused.value) == (
            "the channel refuses a change of /assignments/h1: that takes controller, and this process is agent; "
            f"credentials are looked for in {folder}"
        )
        with pytest.raises(NotAllowedError, match="/tiers/entry/owner: that takes audit or controller"):
            agent.multi([Write(paths.owner("entry"), OwnerRecord(), None)])
        with pytest.raises(NotAllowedError, match="/assignments/h1: that takes operator"):
            agent.delete(paths.assignment("h1"))
        assert agent.read(paths.assignment("h1"), Assignment).value == Assignment(), "everybody may read"
    with Channel(place.zookeeper) as nobody:
        with pytest.raises(NotAllowedError, match="that takes controller or operator or publisher, and this endpoints file names no roles"):
            nobody.put(paths.wanted("entry"), TierWanted())
        with pytest.raises(NoAuthError):
            nobody.kazoo.set_acls("/config", nobody.kazoo.acl("/config"))


def test_who_has_no_credential_can_look_and_is_told_whose_it_lacks(place, admin):
    admin.put(paths.wanted("entry"), TierWanted(running=True))
    (place.access.credentials / Role.OPERATOR).unlink()
    with Channel(place.zookeeper, place.credential(Role.OPERATOR)) as channel:
        assert channel.read(paths.wanted("entry"), TierWanted).value.running
        with pytest.raises(NotAllowedError, match="this process has no credential of operator; credentials are looked for in"):
            channel.put(paths.wanted("entry"), TierWanted())
    with pytest.raises(endpoints.EndpointsError, match=r"credentials/operator is not there, or not for user \d+: copy"):
        place.needed(Role.OPERATOR)


def test_a_credential_that_is_not_the_known_one_or_lies_open_is_refused(place):
    kept = place.access.credentials / Role.AGENT
    kept.chmod(0o644)
    with pytest.raises(endpoints.EndpointsError, match=r"chmod o= .*/agent"):
        place.needed(Role.AGENT)
    kept.chmod(0o600)
    kept.write_text("another")
    with pytest.raises(endpoints.EndpointsError, match="is not the credential that the endpoints file knows for agent"):
        place.needed(Role.AGENT)


def test_an_open_tree_is_closed_with_all_that_is_in_it(place, zookeeper):
    with Channel(place.zookeeper) as before:  # as an older version has left it
        before.put(paths.wanted("entry"), TierWanted())
        before.put(paths.assignment("h1"), Assignment())
        before.create(paths.exporter("agent"), TierWanted(), ephemeral=True, sequence=True)
        with connected(place, Role.ADMIN) as admin:
            open_to_all = tree.other(admin.kazoo)
            assert {"/", "/assignments/h1", "/config/wanted/entry"} <= set(open_to_all)
            assert tree.apply(admin.kazoo) == len(open_to_all)
            assert tree.apply(admin.kazoo) == 0
            assert tree.other(admin.kazoo) == []
            with pytest.raises(NotAllowedError):
                before.put(paths.assignment("h1"), Assignment(epoch=2))
    with connected(place, Role.AGENT) as agent, pytest.raises(NotAllowedError, match="by their admin only"):
        tree.apply(agent.kazoo)
    plain = KazooClient(zookeeper)
    plain.start()
    with pytest.raises(NoAuthError):
        plain.delete(f"/{place.zookeeper.partition('/')[2]}/config", recursive=True)
    plain.stop()
    plain.close()


def test_a_tree_that_lacks_a_root_is_made_whole_by_the_admin_only(place, admin):
    admin.kazoo.delete(paths.EXPORTERS)
    with pytest.raises(NotAllowedError, match="`sluice access --apply`"):
        connected(place, Role.AGENT).start()
    tree.apply(admin.kazoo)
    for role in PROCESSES:
        connected(place, role).start().stop()


def test_a_controller_leads_with_its_credential_and_does_not_start_without(place, admin, tmp_path):
    file = tmp_path / "endpoints.json"
    file.write_text(place.model_dump_json())
    words = [sys.executable, "-m", "ops.controller", "--site", SITE, "--name", "c1"]
    environment = {**os.environ, "SLUICE_ENDPOINTS": str(file), "SLUICE_HOME": str(tmp_path)}
    admin.put(paths.wanted("entry"), TierWanted())
    with (tmp_path / "log").open("w") as log:
        controller = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while admin.read(paths.CONTROLLER_STATUS, ControllerStatus) is None:
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.1)
    finally:
        controller.terminate()
        controller.wait(20)
    assert tree.other(admin.kazoo) == []
    assert tree.unknown(admin.kazoo) == []
    kept = place.access.credentials / Role.CONTROLLER
    password = kept.read_text().strip()
    assert password not in (tmp_path / "log").read_text()
    kept.unlink()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{kept} is not there" in done.stderr


def test_the_command_line_makes_credentials_applies_and_tells(place, tmp_path):
    def sluice(*words):
        command = [str(Path(sys.executable).with_name("sluice")), "access", *words]
        environment = {**os.environ, "SLUICE_ENDPOINTS": str(file), "SLUICE_HOME": str(tmp_path), "SLUICE_SITE": str(SITE)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    file = tmp_path / "endpoints.json"
    file.write_text(place.model_dump_json(exclude={"access"}))
    assert "names no roles" in sluice().stderr
    assert sluice("--make").returncode == 0
    assert set(json.loads(file.read_text())["access"]["roles"]) == set(Role)
    with Channel(place.zookeeper) as before:
        before.put(paths.assignment("h1"), Assignment())
    told = sluice()
    assert (told.returncode, "has another access list" in told.stdout, "`sluice access --apply`" in told.stdout) == (1, True, True)
    assert "/assignments/h1" in json.loads(sluice("--json").stdout)["others"]
    assert sluice("--apply").returncode == 0
    assert json.loads(sluice("--json").stdout) == {"ok": True, "others": [], "unknown": []}
    (tmp_path / "credentials" / Role.ADMIN).unlink()
    assert "credentials/admin is not there" in sluice().stderr


def test_a_channel_that_is_away_is_told_from_one_that_refuses(place):
    away = Channel("127.0.0.1:1/x", place.needed(Role.ADMIN))
    with pytest.raises(ChannelAwayError) as error:
        away.put(paths.assignment("h1"), Assignment())
    assert not isinstance(error.value, NotAllowedError)
    assert parent("/a/b") == "/a"


def test_a_host_joins_with_a_token_once_and_serves_with_what_it_got(place, admin, tmp_path, monkeypatch):
    known, folder, file = tmp_path / "endpoints.json", place.access.credentials, tmp_path / "h1.token"
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(known))
    known.write_text(place.model_dump_json())
    token, secret = joining.make(place, 60), place.needed(Role.AGENT).password
    (name,) = admin.children(paths.JOINING)
    sealed = admin.kazoo.get(paths.joining(name))[0].decode()
    assert token.key not in sealed
    assert secret not in sealed

    known.unlink()  # a bare host has the same paths, and nothing there
    admins = folder.rename(tmp_path / "the admin's")
    file.write_text(token.model_dump_json())
    joining.join(file)
    assert not file.exists()
    joining.join(file)  # its unit starts again with the same words
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == dict.fromkeys(joining.HELD, 0o600)
    assert endpoints.load() == place
    with connected(endpoints.load(), Role.AGENT) as agent:
        agent.put(paths.observed("h1"), Observed(epoch=1, agent_started=0.0, limits="none"))
    file.write_text(token.model_dump_json())
    with pytest.raises(joining.JoinError, match="was used, or its time is over"):
        joining.join(file)

    shutil.rmtree(folder)
    admins.rename(folder)
    late = joining.make(place, -1)
    file.write_text(late.model_dump_json())
    with pytest.raises(joining.JoinError, match="was used, or its time is over"):
        joining.join(file)
    wrong = joining.make(place, 60)
    assert not admin.exists(paths.joining(late.name)), "what nobody has used in its time goes with the next one"
    file.write_text(wrong.model_copy(update={"key": token.key}).model_dump_json())
    with pytest.raises(joining.JoinError, match="does not open"):
        joining.join(file)
    assert admin.exists(paths.joining(wrong.name))
