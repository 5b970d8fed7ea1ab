"""Lines of a log go sealed from a process to an operator, and nothing stays in the channel."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.memory import MemoryChannel

from sluice_ops.channel import Write
from sluice_ops.channel.client import LARGEST_BYTES
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.ids import HostName
from sluice_ops.model.logs import ANSWER, Answering, LogAnswer, LogPart, LogRequest
from sluice_ops.operations.log_requests import MOST_ANSWERS, PURPOSE, LogServer, NoAnswerError, ask
from sluice_ops.operations.sealing import public_key, seal
from tests.unit.sluice_ops.log_serving import serving
from tests.unit.sluice_ops.operations.keys import private

FACTS = HostFacts(name=HostName("h1"), address="127.0.1.1", zone="onprem", cpu=8, memory=8192)
PATH = paths.host_log_request("h1", "r1")
WANTED = LogRequest(to="h1", key="", log="driver-entry-4", lines=3)


class Channel(MemoryChannel):
    """The channel in memory, with followers."""

    connected = True

    def on_change(self, follower: Callable[[str | None], None]) -> None:
        self.follower = follower


def read(request: LogRequest) -> LogPart:
    return LogPart(text=f"{request.log}: the last {request.lines} lines\n", position=7)


@pytest.fixture
def channel() -> Channel:
    channel = Channel()
    channel.put(paths.host("h1"), FACTS)
    return channel


@pytest.fixture
def server(channel: Channel) -> LogServer:
    server = LogServer(channel, paths.host_logs("h1"), "h1", read)
    server.look()
    return server


def below(channel: Channel) -> list[str]:
    return channel.children(paths.host_logs("h1"))


def post(channel: Channel, name: str, **fields: object) -> None:
    request = WANTED.model_copy(update={"key": public_key(private()), **fields})
    channel.create(paths.host_log_request("h1", name), request)


def test_an_operator_gets_the_lines_and_nothing_stays(channel: Channel, server: LogServer) -> None:
    with serving(server):
        part = ask(channel, PATH, WANTED)
    assert part == LogPart(text="driver-entry-4: the last 3 lines\n", position=7)
    server.look()
    assert below(channel) == []


def test_an_answer_can_be_read_by_nobody_else(channel: Channel, server: LogServer) -> None:
    post(channel, "r1")
    server.look()
    answer = channel.read(PATH + ANSWER, LogAnswer)
    assert answer is not None
    assert "lines" not in answer.value.data


@pytest.mark.usefixtures("server")
def test_a_process_that_does_not_answer_is_named(channel: Channel) -> None:
    with pytest.raises(NoAnswerError, match="h1 did not answer within 0 s"):
        ask(channel, PATH, WANTED, seconds=0.1)
    assert below(channel) == []


def test_a_process_of_an_older_version_is_told_apart(channel: Channel) -> None:
    with pytest.raises(NoAnswerError, match="its version of Sluice is older"):
        ask(channel, PATH, WANTED)
    assert not channel.exists(PATH)


def test_a_host_that_has_not_registered_gets_no_nodes() -> None:
    channel = Channel()
    LogServer(channel, paths.host_logs("h1"), "h1", read).look()
    assert channel.nodes == {}


def test_a_request_whose_operator_was_killed_leaves_nothing(channel: Channel, server: LogServer) -> None:
    post(channel, "before")
    channel.delete(paths.host_log_request("h1", "before"))
    server.look()
    assert below(channel) == [], "killed before the answer"
    post(channel, "after")
    server.look()
    channel.delete(paths.host_log_request("h1", "after"))
    server.look()
    assert below(channel) == [], "killed after the answer"


def test_a_process_that_was_killed_answers_after_its_restart(channel: Channel, server: LogServer) -> None:
    post(channel, "r1")
    server.look()
    channel.delete(PATH + ANSWER)  # ephemeral
    LogServer(channel, paths.host_logs("h1"), "h1", read).look()
    assert channel.exists(PATH + ANSWER)


def test_a_process_has_a_bounded_number_of_answers(channel: Channel, server: LogServer) -> None:
    for number in range(MOST_ANSWERS + 3):
        post(channel, f"r{number:02}")
    for _ in range(3):
        server.look()
    assert sum(name.endswith(ANSWER) for name in below(channel)) == MOST_ANSWERS
    channel.delete(paths.host_log_request("h1", "r00"))
    server.look()
    server.look()
    assert f"r{MOST_ANSWERS:02}{ANSWER}" in below(channel)


def test_only_the_controller_that_is_asked_answers(channel: Channel) -> None:
    channel.put("/controller", Answering(name="root"))
    server = LogServer(channel, paths.CONTROLLER_LOGS, "c2", read)
    server.look()
    for name in ("c1", "c2"):
        request = WANTED.model_copy(update={"to": name, "key": public_key(private())})
        channel.create(paths.controller_log_request(name), request)
    server.look()
    assert channel.children(paths.CONTROLLER_LOGS) == ["c1", "c2", f"c2{ANSWER}"]


@pytest.mark.parametrize("damage", [{"lines": -1}, {"after": -1}, {"key": "no key"}])
def test_an_invalid_request_is_left_without_an_answer(
    channel: Channel, server: LogServer, damage: dict[str, object]
) -> None:
    channel.put(PATH, WANTED)
    post(channel, "good")
    values = WANTED.model_dump() | {"key": public_key(private())} | damage
    channel.multi([Write(PATH, LogRequest.model_construct(**values), -1)])
    server.look()
    assert below(channel) == ["good", f"good{ANSWER}", "r1"]


def test_a_change_of_the_requests_or_of_the_host_wakes_the_process(
    channel: Channel, server: LogServer
) -> None:
    for path, wakes in (
        (None, True),
        (paths.host_logs("h1"), True),
        (paths.host("h1"), True),
        ("/assignments/h1", False),
    ):
        server._wake.clear()
        channel.follower(path)
        assert server._wake.is_set() == wakes, path


@given(st.text(max_size=50), st.integers(0, 40_000))
def test_every_answer_fits_into_a_node(line: str, count: int) -> None:
    text = f"{line}\n" * count
    part = LogPart.fitting(text, 1)
    sealed = LogAnswer(data=seal(part.model_dump_json(), public_key(private()), PURPOSE))
    assert len(sealed.model_dump_json().encode()) < LARGEST_BYTES
    assert text.endswith(part.text)
    assert part.cut == (part.text != text)
    if part.cut:
        assert text[: len(text) - len(part.text)].endswith("\n")
