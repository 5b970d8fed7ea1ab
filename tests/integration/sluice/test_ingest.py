"""`sluice ingest` on real Kafka: each record once behind the entry, though sources are killed, and
the audit is exact.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import httpx
import pytest

from hits.feed import hit
from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.ingest.process import TAKEN_OVER_EXIT
from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import OwnerRecord, State
from tests.integration.sluice.test_streams import records
from tests.lab import ROOT, Lab, free_ports, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
KILLS = 6


def line(number: int) -> str:
    return json.dumps(hit(number, time.time()))


class Process:
    """A source as a process, which a test kills and starts again."""

    def __init__(self, lab: Lab, *words: str) -> None:
        self.lab, self.words = lab, words
        self.log = lab.home / f"{words[0]}-{time.monotonic_ns()}.log"
        self.process = self.started()
        self.kills = 0

    def started(self) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-c", "from sluice_ops.main import app; app()"]
        command = [*program, "ingest", *self.words, "--stream", "raw"]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=self.lab.env, cwd=ROOT, stdout=log, stderr=log)

    def kill_at_work(self, seconds: float) -> None:
        """Kill the source so many seconds after it began to work, and start it again."""
        until("the source works", lambda: self.starts() > self.kills, seconds=60)
        time.sleep(seconds)
        self.restart()
        self.kills = self.starts()

    def starts(self) -> int:
        return self.log.read_text().count("source started")

    def restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self.started()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture(scope="module", autouse=True)
def entry(lab: Lab) -> None:
    lab.start_owner("entry", 1, "h1")
    lab.wait_for("entry", 1, State.RUNNING)


@pytest.fixture
def auditor(lab: Lab) -> Iterator[Auditor]:
    tiers = tuple(tier for tier in declarations.load("hits").tiers if tier.name == "entry")
    with closing(Auditor(tiers, lab.endpoints)) as opened:
        yield opened


def ids(lab: Lab, stream: str, first: int, end: int) -> Counter[int]:
    numbers = (int(record.value["id"].removeprefix("hit-")) for record in records(lab, stream))
    return Counter(number for number in numbers if first <= number < end)


def check_once(lab: Lab, auditor: Auditor, first: int, end: int) -> None:
    """Check that each hit is once in the input and once in the output, and the audit's account."""
    once = Counter(range(first, end))
    until("every record is in raw", lambda: set(ids(lab, "raw", first, end)) == set(once), seconds=60)
    until("every record is in hits", lambda: set(ids(lab, "hits", first, end)) == set(once), seconds=60)
    time.sleep(2)  # a second copy would come now
    assert ids(lab, "raw", first, end) == once
    assert ids(lab, "hits", first, end) == once
    missing = []
    with closing(Streams(lab.endpoints.kafka)) as streams:
        raw_ends = streams.bounds(["raw"]).ends

        def is_judged() -> bool:
            missing.extend(auditor.check())
            done = auditor._audits["entry"].done()
            return all(done.get(place, 0) >= offset for place, offset in raw_ends.items() if offset)

        until("the audit has judged every offset, also those of markers", is_judged, seconds=90)
    assert [loss.sentence for loss in missing] == []


class RotatedLog:
    """A program that writes hits into a log file, and a rotation each second."""

    def __init__(self, path: Path, first: int) -> None:
        self.path, self.number = path, first
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        rotations, rotate_at = 0, time.monotonic() + 1
        while not self.over.wait(0.01):
            with self.path.open("a") as file:
                for _ in range(5):
                    text = f"{line(self.number)}\n"
                    file.write(text[:20])
                    file.flush()
                    file.write(text[20:])
                    self.number += 1
            if time.monotonic() > rotate_at:
                rotations, rotate_at = rotations + 1, time.monotonic() + 1
                rotated = self.path.with_name(f"{self.path.name}.{rotations}")
                if rotations % 2:
                    self.path.rename(rotated)
                else:
                    shutil.copy(self.path, rotated)
                    self.path.open("w").close()


def test_lines_of_rotated_files_come_once_though_the_source_is_killed(
    lab: Lab, auditor: Auditor, tmp_path: Path
) -> None:
    auditor.check()
    log = RotatedLog(tmp_path / "app.log", 1)
    source = Process(lab, "files", f"{tmp_path}/app.log*", "--name", "app", "--key", "user")
    log.thread.start()
    generator = random.Random(7)  # noqa: S311 — test data
    for _ in range(KILLS):
        source.kill_at_work(generator.uniform(0.1, 2))
    log.over.set()
    log.thread.join()
    check_once(lab, auditor, 1, log.number)
    headers = [record.headers["source"] for record in records(lab, "raw")]
    assert len(set(headers)) == len(headers), "each record names its place in its file"
    assert source.end() == 0

    # a source that starts again, and one that takes over from a process that still runs
    source = Process(lab, "files", f"{tmp_path}/app.log*", "--name", "app")
    until("the source runs again", lambda: "source started" in source.log.read_text())
    other = Process(lab, "files", f"{tmp_path}/app.log*", "--name", "app")
    until("the other source owns the name", lambda: "source started" in other.log.read_text())
    with (tmp_path / "app.log").open("a") as file:
        file.write(f"{line(log.number)}\n")
    assert source.process.wait(30) == TAKEN_OVER_EXIT
    assert "was taken over by" in source.log.read_text()
    check_once(lab, auditor, 1, log.number + 1)
    assert other.end() == 0


def web_server(lab: Lab, port: int) -> Process:
    return Process(lab, "http", "--name", "web", "--port", str(port), "--key", "user")


class Client:
    """Sends requests with ten hits each, and repeats each one until a server has answered."""

    def __init__(self, port: int, first: int) -> None:
        self.number = first
        self.requests: dict[str, bytes] = {}
        self.answers: Counter[int] = Counter()
        self.addresses = [address(port)]

    def send(self, key: str) -> dict[str, int]:
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        for turn in count():
            url = self.addresses[turn % len(self.addresses)]
            with suppress(httpx.TransportError):
                answer = httpx.post(url, content=self.requests[key], headers=headers, timeout=40)
                self.answers[answer.status_code] += 1
                if answer.status_code == 200:
                    return dict(answer.json())
            time.sleep(0.05)
        raise AssertionError

    def send_next(self) -> None:
        lines = [line(self.number + index) for index in range(10)]
        key = f"batch {self.number}"
        self.requests[key] = "\n".join(lines).encode()
        assert self.send(key) == {"records": 10}
        self.number += 10


def address(port: int) -> str:
    return f"http://127.0.0.1:{port}/records"


def test_requests_come_once_though_the_server_is_killed(lab: Lab, auditor: Auditor) -> None:
    auditor.check()
    first, ports = 1_000_000, free_ports(2)
    server, client = web_server(lab, ports[0]), Client(ports[0], first)

    def kill() -> None:
        generator = random.Random(7)  # noqa: S311 — test data
        for _ in range(KILLS):
            server.kill_at_work(generator.uniform(0.1, 2))

    killer = threading.Thread(target=kill)
    killer.start()
    while killer.is_alive():
        client.send_next()
    killer.join()
    check_once(lab, auditor, first, client.number)

    server.restart()
    requests = list(client.requests)
    assert all(client.send(key) == {"records": 10} for key in requests), "the same answers after a restart"
    assert set(client.answers) == {200}

    # another server takes over from the one that runs, and gives the same answers
    other = web_server(lab, ports[1])
    client.addresses.append(address(ports[1]))
    while server.process.poll() is None:
        client.send_next()
    assert server.process.returncode == TAKEN_OVER_EXIT
    client.addresses = [address(ports[1])]
    client.send_next()
    assert all(client.send(key) == {"records": 10} for key in requests)
    check_once(lab, auditor, first, client.number)

    owner = lab.channel.read(paths.owner("entry"), OwnerRecord)
    assert owner is not None
    throttled = owner.value.model_copy(update={"held_for": TierName("counts"), "admitted": 0.0})
    lab.channel.put(paths.owner("entry"), throttled)
    new = line(client.number)

    def status() -> int:
        headers = {"Content-Type": "application/json"}
        return httpx.post(address(ports[1]), content=new, headers=headers).status_code

    until("the server refuses while the entry is throttled", lambda: status() == 429, seconds=20)
    assert client.send(requests[0]) == {"records": 10}, "a repeated request is answered"
    lab.channel.put(paths.owner("entry"), owner.value)
    until("the server takes records again", lambda: status() == 200, seconds=20)
    assert other.end() == 0
    # the entry itself may repeat records of `hits` when it stops and starts its query
    assert ids(lab, "raw", first, client.number) == Counter(range(first, client.number))
