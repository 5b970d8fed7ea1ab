"""Two persons at the command line, real controllers and ZooKeeper with access lists: a pause of
everything waits, is approved, refused or forgotten, and outlives the death of the leader.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluice_ops.channel import NotAllowedError, access_lists, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.approval import Answer
from sluice_ops.model.status import ControllerStatus
from tests.integration.sluice_ops.controller.test_access import connected

pytestmark = pytest.mark.timeout(400)

SITE = Path(__file__).parents[4] / "site.yaml"
COMMAND = Path(sys.executable).parent / "sluice"
WAIT_SECONDS = 90.0


class Platform:
    """Controllers, and commands of several users."""

    def __init__(self, folder, endpoints, admin):
        self.folder, self.admin, self.controllers = folder, admin, {}
        file = folder / "endpoints.json"
        file.write_text(endpoints.model_dump_json())
        self.site = folder / "site.yaml"
        self.site.write_text(SITE.read_text())
        self.environment = {
            **os.environ,
            "SLUICE_ENDPOINTS": str(file),
            "SLUICE_HOME": str(folder),
            "SLUICE_SITE": str(self.site),
        }

    def start(self, name):
        words = [sys.executable, "-m", "sluice_ops.controller", "--site", str(self.site), "--name", name]
        with (self.folder / f"{name}.log").open("a") as log:
            self.controllers[name] = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)

    def kill(self, name):
        controller = self.controllers.pop(name)
        controller.kill()
        controller.wait(20)

    def leader(self):
        read = self.admin.read(paths.CONTROLLER_STATUS, ControllerStatus)
        return None if read is None else read.value.leader

    def begin(self, user, *words):
        """Start a command of a user, and return its process."""
        return subprocess.Popen(
            [COMMAND, *words],
            env={**self.environment, "LOGNAME": user},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def sluice(self, user, *words):
        """Carry out a command; return its exit code and output."""
        print(f"$ {user}: sluice {' '.join(words)}")
        return ended(self.begin(user, *words))

    def json(self, *words):
        done = self.begin("ben", *words, "--json")
        output, _ = done.communicate(timeout=WAIT_SECONDS)
        return json.loads(output)

    def asked(self):
        """Wait for a change that waits for approval, and return its id."""
        self.until(lambda: self.json("approve"))
        return self.json("approve")[0]["change"]

    def until(self, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.fixture
def platform(site_endpoints, admin, tmp_path):
    made = Platform(tmp_path, site_endpoints, admin)
    made.start("c1")
    made.until(lambda: made.leader() == "c1")
    yield made
    for name in [*made.controllers]:
        made.kill(name)


def ended(command):
    """Return the exit code and the output of a command."""
    output = "".join(command.communicate(timeout=WAIT_SECONDS))
    print(output)
    return command.returncode, output


def test_another_person_approves_and_the_next_leader_begins_the_change(platform):
    platform.start("c2")
    code, output = platform.sluice("anna", "pause", "--dry-run")
    assert (code, "it would wait for the approval of another person" in output) == (0, True)
    pause = platform.begin("anna", "pause")
    change = platform.asked()
    assert f"To approve: `sluice approve {change}`" in platform.sluice("ben", "status")[1]
    platform.kill("c1")
    code, output = platform.sluice("anna", "approve", change)
    assert (code, "another person has to approve it" in output) == (1, True)
    assert pause.poll() is None
    code, output = platform.sluice("ben", "approve", change)
    assert code == 0, output
    assert ended(pause)[0] == 0
    assert platform.leader() == "c2"
    entries = sorted((each.entry for each in trail_queue.queued(platform.admin)), key=lambda each: each.at)
    assert [(entry.outcome, entry.by) for entry in entries if entry.change == change] == [
        ("asked", "cli:anna"),
        ("approved", "cli:ben"),
        ("begun", "cli:anna"),
        ("done", "cli:anna"),
    ]
    assert access_lists.find_wrong(platform.admin.kazoo) == []


def test_a_refusal_needs_a_reason_which_its_requester_reads(platform):
    pause = platform.begin("anna", "pause")
    change = platform.asked()
    assert platform.sluice("ben", "approve", change, "--refuse")[0] == 2
    assert platform.sluice("ben", "approve", change, "--refuse", "--why", "the report runs")[0] == 0
    code, output = ended(pause)
    assert (code, "cli:ben refused it, and nothing was changed: the report runs" in output) == (1, True)


def test_a_change_that_nobody_answers_ends_and_a_change_may_need_nobody(platform):
    platform.site.write_text(f"{SITE.read_text()}\napproval: {{within_seconds: 10}}\n")
    time.sleep(4)
    code, output = ended(platform.begin("anna", "pause"))
    assert (code, "nobody approved it within 10 s" in output) == (1, True)
    platform.site.write_text(f"{SITE.read_text()}\napproval: off\n")
    time.sleep(4)
    assert ended(platform.begin("anna", "pause"))[0] == 0


def test_only_an_operator_answers(platform, site_endpoints):
    pause = platform.begin("anna", "pause")
    change = platform.asked()
    node = Answer(approved=True, by="cli:mallory", at=1.0)
    for role in (Role.DRIVER, Role.AGENT, Role.AUDIT, Role.PUBLISHER):
        with connected(site_endpoints, role) as channel, pytest.raises(NotAllowedError):
            channel.create(paths.approval(change), node)
    assert platform.sluice("anna", "abort", change)[0] == 0
    assert ended(pause)[0] == 1
