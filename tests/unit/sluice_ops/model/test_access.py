"""Access rights in ZooKeeper: the table covers every node and gives each role only the rights it
needs.
"""

import inspect

import pytest
from kazoo.security import make_digest_acl_credential

from sluice_ops.channel.connection import access_list
from sluice_ops.model import paths
from sluice_ops.model.access import (
    TABLE,
    HostCredential,
    Role,
    changers,
    host_of,
    id_of,
    removers,
    rights,
    row_of,
)

CONSTANTS = [
    value
    for name, value in vars(paths).items()
    if isinstance(value, str) and value.startswith("/") and name.isupper()
]


def every_path():
    """Yield one path of each kind that `paths` defines."""
    yield from (*paths.ROOTS, *CONSTANTS)
    for name, function in inspect.getmembers(paths, inspect.isfunction):
        if name == "trail":
            yield from (function(role, "x") for role in paths.TRAIL_ROLES)
        elif name not in {"tier_of", "joining_of"}:
            yield function(*(["x", 3][: len(inspect.signature(function).parameters)]))


def test_the_table_covers_every_node():
    assert [path for path in every_path() if row_of(path) is None] == []


def test_parents_that_only_the_controller_could_make_are_made_first():
    """Only the controller may make nodes at the top."""
    roots = {path.split("/")[1] for path in paths.ROOTS}
    parents = {path.split("/")[1] for path, row in TABLE.items() if row.create - {Role.CONTROLLER}}
    assert parents <= roots


def test_only_the_admin_may_change_a_node_outside_the_table():
    assert row_of("/tiers/a/b/c/d/e/f") is None
    assert not changers("/nowhere/at/all")
    (anyone, admin) = access_list(
        ((Role.AGENT, "agent:x"), (Role.ADMIN, "admin:x")), rights("/nowhere/at/all")
    )
    assert (anyone.acl_list, anyone.id.scheme) == (["READ"], "world")
    assert (admin.acl_list, admin.id.id) == (["ALL"], "admin:x")


@pytest.mark.parametrize(
    ("path", "roles"),
    [
        (paths.assignment("h1"), {Role.CONTROLLER}),
        # The audit creates `loss` below a tier; an access list cannot restrict a node's name.
        (paths.owner("entry"), {Role.CONTROLLER, Role.AUDIT}),
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
        (paths.instance("i-1"), {Role.OPERATOR}),
        (paths.source("web@raw"), {Role.SOURCE}),
        (paths.source_live("web@raw"), {Role.SOURCE}),
        (paths.joining("h1"), set()),
        (paths.claim("h1"), {Role.JOINER}),
        (paths.answer("h1"), {Role.CONTROLLER}),
    ],
)
def test_each_node_is_changed_only_by_the_roles_that_own_it(path, roles):
    assert changers(path) == roles


def test_operations_results_journals_and_releases_are_never_changed():
    for path in (
        paths.operation("x"),
        paths.result("x"),
        f"{paths.journal('x')}/0000000001",
        paths.release("r1"),
    ):
        assert not rights(path).write
    assert removers(paths.operation("x")) == {Role.CONTROLLER}


def test_the_table_names_every_role_except_the_admin():
    named = {role for granted in TABLE.values() for role in granted.write | granted.create | granted.delete}
    assert named == set(Role) - {Role.ADMIN}


def test_the_id_of_a_role_is_zookeepers_digest():
    assert id_of(Role.AGENT, "secret") == make_digest_acl_credential("agent", "secret")


def test_agents_write_only_nodes_of_their_own_host():
    for path in every_path():
        if Role.AGENT in rights(path).write:
            assert host_of(path) == "x", path
    assert host_of(paths.host_record("h1")) == "h1"
    assert [host_of(path) for path in ("/hosts", paths.assignment("h1"), paths.JOINING, "/nowhere")] == [
        None
    ] * 4


def test_the_agent_of_each_host_has_a_digest_of_its_own():
    assert HostCredential("h1", "secret").known_as == make_digest_acl_credential("agent-h1", "secret")
    assert "secret" not in repr(HostCredential("h1", "secret"))
