"""Controllers and agents of two versions of the code side by side: upgraded one by one under a slot that runs, and back again."""

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
    """Controllers of either version on a lab's channel; one slot of h1 is lent to batch."""

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
        """Have a controller lead, which stands by while the one before it is killed."""
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
            lambda: (found := self.lab.channel.read(paths.EPOCH, EpochRecord)) and found.value.leader == name,
        )

    def change(self, **what: Any) -> None:
        """Carry a change out."""
        done = run(self.lab.channel, f"c{time.time_ns()}", ChangeSpec(**what), "test", 60)
        assert all(step.result.ok for step in done), done

    def survey(self) -> Result:
        """Post the operation that only the next version knows, as a tool of that version would."""
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
            "it is answered", lambda: self.lab.channel.read(paths.result(f"{change}.survey"), Result), 30
        ).value


@pytest.fixture
def controllers(lab: Lab) -> Iterator[Controllers]:
    made = Controllers(lab)
    yield made
    for process in made.running.values():
        lab.kill(process)


def raw(lab: Lab, path: str) -> str:
    """Return what is in a node, letter by letter."""
    return str(lab.channel.kazoo.get(path)[0].decode())


def goes_on(lab: Lab, *before: UnitObserved) -> None:
    """What ran still runs as it did, a while later too."""
    time.sleep(3)
    for unit, was in zip((FIRST, SECOND), before, strict=False):
        now = lab.running(unit)
        assert (now.pid, now.restarts) == (was.pid, was.restarts)


def test_an_upgrade_one_by_one_and_back_again_under_slots_that_run(
    lab: Lab, controllers: Controllers, newer: Path
) -> None:
    # a new controller, an old agent: it makes true what it knows of an assignment
    controllers.lead("new", newer)
    agent = lab.agent()
    first = lab.running(FIRST)
    written = raw(lab, paths.assignment("h1"))
    assert written.count(ADDED) == 3, "in the assignment, its unit, and the unit's quantum"
    assert ADDED not in raw(lab, paths.observed("h1"))

    # an old controller again: what it does not know stays where it writes, and an operation that it does not know is refused by name
    controllers.lead("old", REPOSITORY)
    controllers.change(kind="scale", tier=BATCH, k=2)
    second = lab.running(SECOND)
    assert raw(lab, paths.assignment("h1")).count(ADDED) == 3, "of the first unit, and the assignment"
    refused = controllers.survey()
    assert not refused.ok
    assert "A newer version of Sluice posted it" in refused.sentence
    goes_on(lab, first, second)

    # a new agent under it: it adopts what runs, and its word counts
    lab.kill(agent)
    agent = lab.agent(code=newer)
    until("the new agent reports", lambda: ADDED in raw(lab, paths.observed("h1")))
    goes_on(lab, first, second)
    controllers.change(kind="scale", tier=BATCH, k=1)
    lab.gone(SECOND)

    # both are new
    controllers.lead("newer", newer)
    assert controllers.survey().ok
    controllers.change(kind="scale", tier=BATCH, k=2)
    second = lab.running(SECOND)
    goes_on(lab, first, second)

    # and back: the old agent finds on its disk what the new one has written, the old controller what the new one has
    lab.kill(agent)
    assert '"of_next": 1' in (lab.home / f"hosts/h1/units/{SECOND.id}/unit.json").read_text()
    since = time.time()
    lab.agent()
    until("the old agent reports", lambda: (seen := lab.observed()) and seen.agent_started > since)
    goes_on(lab, first, second)
    controllers.lead("old-again", REPOSITORY)
    for kind in ("cordon", "return"):
        controllers.change(kind=kind, host="h1")
    goes_on(lab, first, second)
