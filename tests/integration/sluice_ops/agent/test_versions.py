"""Controllers and agents of two versions side by side: upgraded one by one while a slot runs, and
downgraded again.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice_ops.model import paths
from sluice_ops.model.assignment import UnitObserved, label_of, slot_id
from sluice_ops.model.change import ChangeSpec, EpochRecord, Result
from sluice_ops.model.ids import BATCH
from sluice_ops.operations.requests import run
from tests.integration.sluice_ops.agent.conftest import REPOSITORY, Lab, slot, until
from tests.versions import ADDED, make_next

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

FIRST, SECOND = (
    slot(BATCH).model_copy(update={"id": slot_id(BATCH, 0, number), "label": label_of(BATCH, 0)})
    for number in range(2)
)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_next(tmp_path_factory.mktemp("next"))


class Controllers:
    """Controllers of either version on a lab's channel; one slot of h1 is lent to `batch`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        site = lab.home / "site.yaml"
        shipped = (REPOSITORY / "site.yaml").read_text()
        site.write_text(
            shipped.replace(
                "batch: {minimum: 0, target: 0, maximum: 2}", "batch: {minimum: 0, target: 1, maximum: 2}"
            )
        )
        lab.environment["SLUICE_SITE"] = str(site)

    def lead(self, name: str, code: Path) -> None:
        """Start a controller, wait until it stands by, and kill the leader before it."""
        words = ("sluice_ops.controller", "--name", name, "--zookeeper", self.lab.channel.hosts)
        before, self.running[name] = (
            dict(self.running),
            self.lab.run(name, *words, environment=self.lab.environment, code=code),
        )
        log = self.lab.home / f"{name}.log"
        until(f"{name} stands by", lambda: "stands by" in log.read_text())
        for other, process in before.items():
            self.lab.kill(process)
            del self.running[other]
        until(
            f"{name} leads",
            lambda: (epoch := self.lab.channel.read(paths.EPOCH, EpochRecord)) and epoch.value.leader == name,
        )

    def change(self, **what: Any) -> None:
        """Carry out a change, and assert that each step succeeds."""
        done = run(self.lab.channel, f"c{time.time_ns()}", ChangeSpec(**what), "test", 60)
        assert all(step.result.ok for step in done), done

    def survey(self) -> Result:
        """Post the operation that only the next version knows, as that version would; return its
        result.
        """
        change = f"s{time.time_ns()}"
        posted = {
            "id": f"{change}.survey",
            "change": change,
            "step": "survey",
            "spec": {"kind": "survey"},
            "by": "test",
            "posted_at": 0.0,
        }
        self.lab.channel.kazoo.create(paths.operation(f"{change}.survey"), json.dumps(posted).encode())
        return until(
            "the survey is answered",
            lambda: self.lab.channel.read(paths.result(f"{change}.survey"), Result),
            30,
        ).value


@pytest.fixture
def controllers(lab: Lab) -> Iterator[Controllers]:
    both_versions = Controllers(lab)
    yield both_versions
    for process in both_versions.running.values():
        lab.kill(process)


def node_text(lab: Lab, path: str) -> str:
    """Return the text of a node."""
    return str(lab.channel.kazoo.get(path)[0].decode())


def assert_unchanged(lab: Lab, *before: UnitObserved) -> None:
    """Assert, 3 s later, that the units still run with the same process."""
    time.sleep(3)
    for unit, earlier in zip((FIRST, SECOND), before, strict=False):
        now = lab.wait_running(unit)
        assert (now.pid, now.restarts) == (earlier.pid, earlier.restarts)


def test_an_upgrade_one_by_one_and_back_again_under_slots_that_run(
    lab: Lab, controllers: Controllers, newer: Path
) -> None:
    # A new controller and an old agent: the agent carries out the fields of the assignment that it
    # knows.
    controllers.lead("new", newer)
    agent = lab.start_agent()
    first = lab.wait_running(FIRST)
    written = node_text(lab, paths.assignment("h1"))
    assert written.count(ADDED) == 3, "in the assignment, its unit, and the unit's quantum"
    assert ADDED not in node_text(lab, paths.observed("h1"))

    # An old controller again: it keeps unknown fields where it writes, and refuses an unknown
    # operation by name.
    controllers.lead("old", REPOSITORY)
    controllers.change(kind="scale", tier=BATCH, k=2)
    second = lab.wait_running(SECOND)
    assert node_text(lab, paths.assignment("h1")).count(ADDED) == 3, (
        "in the assignment, the first unit and its quantum"
    )
    refused = controllers.survey()
    assert not refused.ok
    assert "A newer version of Sluice posted it" in refused.sentence
    assert_unchanged(lab, first, second)

    # A new agent under the old controller: it adopts the running units, and its report counts.
    lab.kill(agent)
    agent = lab.start_agent(code=newer)
    until("the new agent reports", lambda: ADDED in node_text(lab, paths.observed("h1")))
    assert_unchanged(lab, first, second)
    controllers.change(kind="scale", tier=BATCH, k=1)
    lab.wait_gone(SECOND)

    # Both are new.
    controllers.lead("newer", newer)
    assert controllers.survey().ok
    controllers.change(kind="scale", tier=BATCH, k=2)
    second = lab.wait_running(SECOND)
    assert_unchanged(lab, first, second)

    # Back again: the old agent reads files of the new agent, and the old controller nodes of the
    # new controller.
    lab.kill(agent)
    assert '"of_next": 1' in (lab.home / f"hosts/h1/units/{SECOND.id}/unit.json").read_text()
    since = time.time()
    lab.start_agent()
    until("the old agent reports", lambda: (seen := lab.observed()) and seen.agent_started > since)
    assert_unchanged(lab, first, second)
    controllers.lead("old-again", REPOSITORY)
    for kind in ("cordon", "return"):
        controllers.change(kind=kind, host="h1")
    assert_unchanged(lab, first, second)
