"""Access by role on a real ZooKeeper.

Writes that the table allows succeed, other writes are refused, and an open tree is closed.
"""

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel, ChannelAwayError, NotAllowedError, Write, access_lists, trail_queue
from sluice_ops.controller.removal import removals
from sluice_ops.model import paths
from sluice_ops.model.access import HOST, KEPT, PROCESSES, TABLE, Role, host_of, parent
from sluice_ops.model.assignment import Assignment, Decommissioned, HostFacts, HostRecord, HostState, Observed
from sluice_ops.model.incarnation import OwnerRecord, TierWanted
from sluice_ops.model.joining import Sealed
from sluice_ops.model.status import ControllerStatus
from sluice_ops.operations import joining
from sluice_ops.site import endpoints
from sluice_ops.snapshot.view import read_view

pytestmark = pytest.mark.timeout(120)
SITE = Path(__file__).parents[4] / "site.yaml"


def connected(site_endpoints, role):
    return Channel(site_endpoints.zookeeper, site_endpoints.required_credential(role))


def agent_on(site_endpoints, home, host):
    """Connect as the agent of a host, with the credential in the host's folder."""
    folder = HostFolder(home, host)
    folder.make()
    credential = replace(site_endpoints.required_credential(Role.AGENT), own=folder.credential())
    return Channel(site_endpoints.zookeeper, credential)


def facts(home, host):
    folder = HostFolder(home, host)
    folder.make()
    return HostFacts(
        name=host, address="127.0.0.1", zone="onprem", cpu=1, memory=1, known_as=folder.credential().known_as
    )


def test_each_role_can_do_only_what_the_table_allows(site_endpoints, admin, tmp_path):
    with agent_on(site_endpoints, tmp_path, "h1") as agent:
        agent.put(paths.host("h1"), facts(tmp_path, "h1"))
    for row in TABLE:
        admin.kazoo.ensure_path(node_of(row))
    known_as = token(site_endpoints, "x").credential.ids[Role.JOINER]
    admin.put(paths.joining("x"), Sealed(seconds=1, known_as=known_as, data=""))
    access_lists.apply(admin.kazoo)
    assert access_lists.find_wrong(admin.kazoo) == []
    assert access_lists.find_unlisted(admin.kazoo) == []
    differences = []
    by_role = {role: connected(site_endpoints, role) for role in set(KEPT) - {Role.ADMIN}}
    agents = {host: agent_on(site_endpoints, tmp_path, host) for host in ("h1", "h2")}
    joiners = {
        f"joiner-{host}": Channel(site_endpoints.zookeeper, token(site_endpoints, host).credential)
        for host in ("x", "h2")
    }
    for name, connection in {**by_role, **agents, **joiners}.items():
        role = Role.AGENT if name in agents else Role.JOINER if name in joiners else name
        with connection as channel:
            for row, granted in TABLE.items():
                path = node_of(row)
                allowed_here = (
                    role is not Role.AGENT or host_of(path) in {None, name}
                ) and name != "joiner-h2"
                below = f"{path.rstrip('/')}/made-by-{name}"
                for right, write in (
                    ("write", lambda path=path: channel.kazoo.set(path, b"")),
                    ("create", lambda below=below: channel.kazoo.create(below)),
                    ("delete", lambda below=below: channel.kazoo.delete(below)),
                ):
                    if right == "delete" and not admin.kazoo.exists(below):
                        admin.kazoo.create(below)
                    if succeeds(write) != (allowed_here and role in getattr(granted, right)):
                        differences.append((name, right, path))
                if admin.kazoo.exists(below):
                    admin.kazoo.delete(below)
    assert differences == []


def node_of(row):
    """Return a node of a row, with host h1 and the name x."""
    return row.replace(HOST, "h1").replace("*", "x")


def token(site_endpoints, host):
    """Return a host's token with its own key."""
    return joining.Token(
        zookeeper=site_endpoints.zookeeper,
        host=host,
        roles=site_endpoints.access.roles,
        key=f"the key of {host}".ljust(43, "x"),
    )


def test_an_agent_writes_its_own_hosts_nodes_and_no_others(site_endpoints, admin, tmp_path):
    observed = Observed(epoch=1, agent_started=0.0, limits="none")
    with (
        agent_on(site_endpoints, tmp_path, "h1") as first,
        agent_on(site_endpoints, tmp_path, "h2") as second,
    ):
        for agent, host in ((first, "h1"), (second, "h2")):
            agent.put(paths.host(host), facts(tmp_path, host))
            agent.create(paths.live(host), facts(tmp_path, host), ephemeral=True)
            agent.put(paths.observed(host), observed)
        assert access_lists.find_wrong(admin.kazoo) == []
        sentence = "this needs the agent of h2, but this process is the agent of h1"
        for path in (paths.host("h2"), paths.live("h2"), paths.observed("h2")):
            with pytest.raises(NotAllowedError, match=sentence):
                first.put(path, facts(tmp_path, "h1"))
        with pytest.raises(NotAllowedError, match=sentence):
            first.delete(paths.live("h2"))
        with (
            connected(site_endpoints, Role.AGENT) as stolen,
            pytest.raises(NotAllowedError, match="this process is an agent without a host"),
        ):
            stolen.put(paths.observed("h2"), observed)
        assert admin.read(paths.observed("h2"), Observed).value == observed


def test_nodes_of_an_older_version_are_bound_to_their_agents_credentials(site_endpoints, admin, tmp_path):
    with connected(site_endpoints, Role.AGENT) as before:  # the tree of an older version
        before.put(paths.host("h1"), facts(tmp_path, "h1").model_copy(update={"known_as": None}))
        before.put(paths.observed("h1"), Observed(epoch=1, agent_started=0.0, limits="none"))
        assert access_lists.find_wrong(admin.kazoo) == []
        with agent_on(site_endpoints, tmp_path, "h1") as agent:
            agent.put(paths.host("h1"), facts(tmp_path, "h1"))
            assert access_lists.find_wrong(admin.kazoo) == [paths.host("h1"), paths.observed("h1")]
            assert access_lists.apply(admin.kazoo) == 2
            agent.put(paths.observed("h1"), Observed(epoch=2, agent_started=0.0, limits="none"))
            with pytest.raises(NotAllowedError, match="needs the agent of h1"):
                before.put(paths.observed("h1"), Observed(epoch=3, agent_started=0.0, limits="none"))
            agent.put(paths.host("h1"), facts(tmp_path, "h1").model_copy(update={"known_as": "world:anyone"}))
            access_lists.apply(admin.kazoo)  # an invalid credential has no effect
            agent.put(paths.host("h1"), facts(tmp_path, "h1"))


def test_a_host_without_its_credential_may_rejoin_once_forgotten(site_endpoints, admin, tmp_path):
    file = tmp_path / "endpoints.json"
    file.write_text(site_endpoints.model_dump_json())

    def forget():
        command = [str(Path(sys.executable).with_name("sluice")), "access", "--forget", "h1"]
        environment = {
            **os.environ,
            "SLUICE_ENDPOINTS": str(file),
            "SLUICE_HOME": str(tmp_path),
            "SLUICE_SITE": str(SITE),
        }
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    assert 'no host "h1" is registered; registered hosts: none' in forget().stderr
    with agent_on(site_endpoints, tmp_path, "h1") as agent:
        agent.put(paths.host("h1"), facts(tmp_path, "h1"))
        agent.put(paths.observed("h1"), Observed(epoch=1, agent_started=0.0, limits="none"))
        agent.create(paths.live("h1"), facts(tmp_path, "h1"), ephemeral=True)
        assert "an agent with the registered credential serves h1 now" in forget().stderr
    new_home = tmp_path / "new home"
    with agent_on(site_endpoints, new_home, "h1") as agent:
        with pytest.raises(NotAllowedError, match="`sluice access --forget h1`"):
            agent.put(paths.host("h1"), facts(new_home, "h1"))
        assert forget().returncode == 0
        agent.put(paths.host("h1"), facts(new_home, "h1"))
        agent.put(paths.observed("h1"), Observed(epoch=1, agent_started=0.0, limits="none"))
    assert access_lists.find_wrong(admin.kazoo) == []
    assert [line.entry.what for line in trail_queue.queued(admin)] == ["forget h1"]


def test_a_decommissioned_host_is_removed_with_its_credential(site_endpoints, admin, tmp_path):
    nodes = (paths.host_record("h1"), paths.host("h1"), paths.observed("h1"), paths.assignment("h1"))
    with connected(site_endpoints, Role.CONTROLLER) as controller:
        with agent_on(site_endpoints, tmp_path, "h1") as agent:
            agent.put(paths.host("h1"), facts(tmp_path, "h1"))
            agent.put(paths.observed("h1"), Observed(epoch=1, agent_started=0.0, limits="none"))
            agent.create(paths.host_logs("h1"), facts(tmp_path, "h1"))
            agent.create(paths.live("h1"), facts(tmp_path, "h1"), ephemeral=True)
            controller.put(paths.assignment("h1"), Assignment())
            controller.put(paths.host_record("h1"), HostRecord(state=HostState.DRAINED))
            gone = Decommissioned(change="d1", by="cli:anna", at=0.0)
            controller.create(paths.decommissioned("h1"), gone)
            assert removals(controller, read_view(controller)) == [], "its agent lives"
        controller.multi(removals(controller, read_view(controller)))
        assert [path for path in nodes if admin.exists(path)] == []
        assert removals(controller, read_view(controller)) == []
    new_home = tmp_path / "new home"
    with agent_on(site_endpoints, new_home, "h1") as another:
        known = Write(paths.host("h1"), facts(new_home, "h1"), None)
        another.multi([known, Write(paths.decommissioned("h1"), None, None)])
        assert access_lists.find_wrong(admin.kazoo) == []


def succeeds(write):
    try:
        write()
    except NoAuthError:
        return False
    return True


def test_a_wrong_role_names_the_right_role_and_where_credentials_lie(site_endpoints, admin):
    admin.put(paths.assignment("h1"), Assignment())
    folder = site_endpoints.access.credentials
    with connected(site_endpoints, Role.AGENT) as agent:
        with pytest.raises(NotAllowedError) as refused:
            agent.put(paths.assignment("h1"), Assignment(epoch=7))
        assert str(refused.value) == (
            "the channel refuses a change of /assignments/h1: this needs the role controller, "
            f"but this process is agent; credentials are looked for in {folder}"
        )
        with pytest.raises(
            NotAllowedError, match="/tiers/entry/owner: this needs the role audit or controller"
        ):
            agent.multi([Write(paths.owner("entry"), OwnerRecord(), None)])
        with pytest.raises(NotAllowedError, match="h1: this needs the role controller or operator"):
            agent.delete(paths.assignment("h1"))
        assert agent.read(paths.assignment("h1"), Assignment).value == Assignment(), "every role may read"
    with Channel(site_endpoints.zookeeper) as nobody:
        with pytest.raises(
            NotAllowedError,
            match="this needs the role controller or operator or publisher, but this endpoints file names "
            "no roles",
        ):
            nobody.put(paths.wanted("entry"), TierWanted())
        with pytest.raises(NoAuthError):
            nobody.kazoo.set_acls("/config", nobody.kazoo.acl("/config"))


def test_without_a_credential_reads_work_and_the_missing_role_is_named(site_endpoints, admin):
    admin.put(paths.wanted("entry"), TierWanted(running=True))
    (site_endpoints.access.credentials / Role.OPERATOR).unlink()
    with Channel(site_endpoints.zookeeper, site_endpoints.credential(Role.OPERATOR)) as channel:
        assert channel.read(paths.wanted("entry"), TierWanted).value.running
        with pytest.raises(
            NotAllowedError, match="this process has no credential of operator; credentials are looked for in"
        ):
            channel.put(paths.wanted("entry"), TierWanted())
    with pytest.raises(
        endpoints.EndpointsError,
        match=r"credentials/operator does not exist, or user \d+ cannot read it: copy",
    ):
        site_endpoints.required_credential(Role.OPERATOR)


def test_a_different_or_world_readable_credential_is_refused(site_endpoints):
    credential_file = site_endpoints.access.credentials / Role.AGENT
    credential_file.chmod(0o644)
    with pytest.raises(endpoints.EndpointsError, match=r"chmod o= .*/agent"):
        site_endpoints.required_credential(Role.AGENT)
    credential_file.chmod(0o600)
    credential_file.write_text("another")
    with pytest.raises(
        endpoints.EndpointsError, match="is not the one of agent in the endpoints file: copy both files"
    ):
        site_endpoints.required_credential(Role.AGENT)


def test_an_open_tree_is_closed_with_all_its_nodes(site_endpoints, zookeeper):
    with Channel(site_endpoints.zookeeper) as before:  # the tree of an older version
        before.put(paths.wanted("entry"), TierWanted())
        before.put(paths.assignment("h1"), Assignment())
        before.create(paths.exporter("agent"), TierWanted(), ephemeral=True, sequence=True)
        with connected(site_endpoints, Role.ADMIN) as admin:
            open_to_all = access_lists.find_wrong(admin.kazoo)
            assert {"/", "/assignments/h1", "/config/wanted/entry"} <= set(open_to_all)
            assert access_lists.apply(admin.kazoo) == len(open_to_all)
            assert access_lists.apply(admin.kazoo) == 0
            assert access_lists.find_wrong(admin.kazoo) == []
            with pytest.raises(NotAllowedError):
                before.put(paths.assignment("h1"), Assignment(epoch=2))
    with (
        connected(site_endpoints, Role.AGENT) as agent,
        pytest.raises(NotAllowedError, match="only the admin may set them"),
    ):
        access_lists.apply(agent.kazoo)
    plain = KazooClient(zookeeper)
    plain.start()
    with pytest.raises(NoAuthError):
        plain.delete(f"/{site_endpoints.zookeeper.partition('/')[2]}/config", recursive=True)
    plain.stop()
    plain.close()


def test_only_the_admin_creates_a_missing_root(site_endpoints, admin):
    admin.kazoo.delete(paths.EXPORTERS)
    with pytest.raises(NotAllowedError, match="`sluice access --apply`"):
        connected(site_endpoints, Role.AGENT).start()
    access_lists.apply(admin.kazoo)
    for role in PROCESSES:
        connected(site_endpoints, role).start().stop()


def test_a_controller_leads_with_its_credential_and_does_not_start_without(site_endpoints, admin, tmp_path):
    file = tmp_path / "endpoints.json"
    file.write_text(site_endpoints.model_dump_json())
    words = [sys.executable, "-m", "sluice_ops.controller", "--site", SITE, "--name", "c1"]
    environment = {**os.environ, "SLUICE_ENDPOINTS": str(file), "SLUICE_HOME": str(tmp_path)}
    admin.put(paths.wanted("entry"), TierWanted())
    with (tmp_path / "log").open("w") as log:
        controller = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while admin.read(paths.CONTROLLER_STATUS, ControllerStatus) is None:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
    finally:
        controller.terminate()
        controller.wait(20)
    assert access_lists.find_wrong(admin.kazoo) == []
    assert access_lists.find_unlisted(admin.kazoo) == []
    credential_file = site_endpoints.access.credentials / Role.CONTROLLER
    password = credential_file.read_text().strip()
    assert password not in (tmp_path / "log").read_text()
    credential_file.unlink()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{credential_file} does not exist" in done.stderr


def test_only_its_agent_writes_a_hosts_nodes_and_a_namesake_is_refused(site_endpoints, admin, tmp_path):
    file = tmp_path / "endpoints.json"
    file.write_text(site_endpoints.model_dump_json())

    def start_agent(home):
        home.mkdir()
        environment = {
            **os.environ,
            "SLUICE_ENDPOINTS": str(file),
            "SLUICE_HOME": str(home),
            "SLUICE_SITE": str(SITE),
        }
        with (home / "log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "sluice_ops.agent", "--host", "h1"],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def wait(condition, process):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
        process.wait(20)

    def stop_units(home):
        environment = {**os.environ, "SLUICE_HOME": str(home)}
        words = [sys.executable, "-m", "sluice_ops.agent", "--stop-all", "--host", "h1"]
        subprocess.run(words, env=environment, check=True, capture_output=True)

    first, second = tmp_path / "first", tmp_path / "second"
    wait(lambda: admin.exists(paths.live("h1")) and admin.exists(paths.observed("h1")), start_agent(first))
    own = HostFolder(first, "h1").credential()
    assert admin.read(paths.host("h1"), HostFacts).value.known_as == own.known_as
    assert stat.S_IMODE((first / "hosts" / "h1" / "credential").stat().st_mode) == 0o600
    for path in (paths.host("h1"), paths.observed("h1")):
        acls, _ = admin.kazoo.get_acls(path)
        assert {acl.id.id for acl in acls if "WRITE" in acl.acl_list} == {own.known_as}
    assert access_lists.find_wrong(admin.kazoo) == []
    wait(lambda: "`sluice access --forget h1`" in (second / "log").read_text(), start_agent(second))
    assert own.password not in (first / "log").read_text()
    for home in (first, second):
        stop_units(home)


def test_the_command_line_makes_credentials_and_applies_access_lists(site_endpoints, tmp_path):
    def sluice(*words):
        command = [str(Path(sys.executable).with_name("sluice")), "access", *words]
        environment = {
            **os.environ,
            "SLUICE_ENDPOINTS": str(file),
            "SLUICE_HOME": str(tmp_path),
            "SLUICE_SITE": str(SITE),
        }
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    file = tmp_path / "endpoints.json"
    file.write_text(site_endpoints.model_dump_json(exclude={"access"}))
    assert "names no roles" in sluice().stderr
    assert sluice("--make").returncode == 0
    assert set(json.loads(file.read_text())["access"]["roles"]) == set(KEPT)
    with Channel(site_endpoints.zookeeper) as before:
        before.put(paths.assignment("h1"), Assignment())
    status = sluice()
    assert (
        status.returncode,
        "has a wrong access list" in status.stdout,
        "`sluice access --apply`" in status.stdout,
    ) == (1, True, True)
    assert "/assignments/h1" in json.loads(sluice("--json").stdout)["others"]
    assert sluice("--apply").returncode == 0
    assert json.loads(sluice("--json").stdout) == {"ok": True, "others": [], "unknown": []}
    (tmp_path / "credentials" / Role.ADMIN).unlink()
    assert "credentials/admin does not exist" in sluice().stderr


def test_a_channel_that_is_away_differs_from_one_that_refuses(site_endpoints):
    away = Channel("127.0.0.1:1/x", site_endpoints.required_credential(Role.ADMIN))
    with pytest.raises(ChannelAwayError) as error:
        away.put(paths.assignment("h1"), Assignment())
    assert not isinstance(error.value, NotAllowedError)
    assert parent("/a/b") == "/a"
