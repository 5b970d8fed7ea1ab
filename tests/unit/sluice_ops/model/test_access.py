"""Who may write what: the table says it of every node that there can be, and gives nobody what only another one needs."""

import inspect

import pytest
from kazoo.security import make_digest_acl_credential

from sluice_ops.channel.connection import access_list
from sluice_ops.model import paths
from sluice_ops.model.access import TABLE, Own, Role, changers, host_of, id_of, removers, rights, row_of

CONSTANTS = [
    value
    for name, value in vars(paths).items()
    if isinstance(value, str) and value.startswith("/") and name.isupper()
]


def every_path():
    """Return a path of each kind that `paths` knows."""
    yield from (*paths.ROOTS, *CONSTANTS)
    for name, function in inspect.getmembers(paths, inspect.isfunction):
        if name == "trail":
            yield from (function(role, "x") for role in paths.TRAIL_ROLES)
        elif name not in {"tier_of", "joining_of"}:
            yield function(*(["x", 3][: len(inspect.signature(function).parameters)]))


def test_the_table_knows_every_node_that_there_can_be():
    assert [path for path in every_path() if row_of(path) is None] == []


def test_what_the_table_does_not_know_is_the_admins_alone():
    assert row_of("/tiers/a/b/c/d/e/f") is None
    assert not changers("/nowhere/at/all")
    (anyone, admin) = access_list(
        ((Role.AGENT, "agent:x"), (Role.ADMIN, "admin:x")), rights("/nowhere/at/all")
    )
    assert (anyone.acl_list, anyone.id.scheme) == (["READ"], "world")
    assert (admin.acl_list, admin.id.id) == (["ALL"], "admin:x")


@pytest.mark.parametrize(
    ("path", "who"),
    [
        (paths.assignment("h1"), {Role.CONTROLLER}),
        (
            paths.owner("entry"),
            {Role.CONTROLLER, Role.AUDIT},
        ),  # below a tier the audit makes `loss`; ZooKeeper asks nobody for names
        (paths.EPOCH, {Role.CONTROLLER}),
        (paths.LOCK, {Role.CONTROLLER}),
        (paths.result("x"), {Role.CONTROLLER}),
        (paths.operation("x"), {Role.OPERATOR, Role.CONTROLLER}),
        (paths.wanted("entry"), {Role.OPERATOR, Role.PUBLISHER, Role.CONTROLLER}),
        (paths.tier("entry"), {Role.PUBLISHER}),
        (paths.release("r1"), {Role.PUBLISHER}),
        (paths.live("h1"), {Role.AGENT, Role.CONTROLLER}),
        (paths.observed("h1"), {Role.AGENT}),
        (paths.report("entry", 1), {Role.DRIVER}),
        (paths.loss("entry"), {Role.AUDIT, Role.CONTROLLER}),
        (paths.CONTROLLER_KEY, {Role.CONTROLLER}),
        (paths.joining("h1"), set()),
        (paths.claim("h1"), {Role.JOINER}),
        (paths.answer("h1"), {Role.CONTROLLER}),
    ],
)
def test_who_may_change_what_others_go_by(path, who):
    assert changers(path) == who


def test_what_was_asked_and_how_it_ended_is_changed_by_nobody():
    for path in (
        paths.operation("x"),
        paths.result("x"),
        f"{paths.journal('x')}/0000000001",
        paths.release("r1"),
    ):
        assert not rights(path).write
    assert removers(paths.operation("x")) == {Role.CONTROLLER}


def test_every_role_has_something_to_write_and_the_admin_stands_in_no_row():
    named = {role for granted in TABLE.values() for role in granted.write | granted.create | granted.delete}
    assert named == set(Role) - {Role.ADMIN}


def test_a_role_is_known_as_zookeeper_knows_it():
    assert id_of(Role.AGENT, "secret") == make_digest_acl_credential("agent", "secret")


def test_what_an_agent_writes_is_its_own_hosts():
    for path in every_path():
        if Role.AGENT in rights(path).write:
            assert host_of(path) == "x", path
    assert host_of(paths.host_record("h1")) == "h1"
    assert [host_of(path) for path in ("/hosts", paths.assignment("h1"), paths.JOINING, "/nowhere")] == [
        None
    ] * 4


def test_the_agent_of_a_host_is_known_by_a_name_of_its_own():
    assert Own("h1", "secret").known_as == make_digest_acl_credential("agent-h1", "secret")
    assert "secret" not in repr(Own("h1", "secret"))
