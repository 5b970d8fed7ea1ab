"""Messages reach a real mail server and a real web server; a dead channel delays no other one."""

import json
import logging
import socket
import threading
import time
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import pytest
from aiosmtpd.controller import Controller
from structlog.testing import capture_logs

from sluice_ops.controller.alerting.delivery import Delivery, Sent, send_by_apprise
from sluice_ops.model.alert import AlertChannel, Message, News, Severity

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PASSWORD = "s3cret-of-ours"


def message(number=1, to=("mail",), **more):
    usual = {
        "key": "host-lost:h1",
        "news": News.FIRED,
        "severity": Severity.WARNING,
        "title": "[sluice] host h1 is lost",
        "text": "What happened: host h1 is lost\n\nWhat to do: sluice write-off h1",
        "at": 1.0,
    }
    return Message(number=number, to=to, **{**usual, **more})


@pytest.fixture
def mailbox():
    class Mailbox:
        def __init__(self):
            self.mails = []

        async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
            self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content)))
            return "250 OK"

    box = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        box.port = probe.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    yield box
    controller.stop()


@pytest.fixture
def web():
    posts, answers = [], [200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posts.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(answers[-1])
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.posts, server.answers = posts, answers
    server.channel = AlertChannel(url=f"json://ops:{PASSWORD}@127.0.0.1:{server.server_port}/hook")
    yield server
    server.shutdown()
    server.server_close()


def mail(port):
    return AlertChannel(
        url=f"mailto://127.0.0.1:{port}/?from=sluice@example.com&to=night@example.com&format=text"
    )


def test_a_mail_says_what_happened_and_what_to_do(mailbox):
    assert send_by_apprise(mail(mailbox.port), message()) is None
    ((to, received),) = mailbox.mails
    assert to == ["night@example.com"]
    assert received["Subject"] == "[sluice] host h1 is lost"
    text = received.get_payload(decode=True).decode()
    assert "What to do: sluice write-off h1" in text


def test_a_webhook_gets_title_text_and_urgency(web):
    assert send_by_apprise(web.channel, message(severity=Severity.CRITICAL)) is None
    assert send_by_apprise(web.channel, message(news=News.RECOVERED)) is None
    assert [(path, post["type"]) for path, post in web.posts] == [("/hook", "failure"), ("/hook", "success")]
    assert web.posts[0][1]["title"] == "[sluice] host h1 is lost"


def test_a_url_may_be_in_a_file_of_the_controllers(web, tmp_path):
    file = tmp_path / "alerts.url"
    channel = AlertChannel(url=f"file:{file}")
    assert send_by_apprise(channel, message()) == f"file:{file}: No such file or directory"
    file.write_text(f"{web.channel.url.get_secret_value()}\n")
    assert send_by_apprise(channel, message()) is None


@pytest.mark.parametrize("answer", [401, 500])
def test_a_refusal_is_told_without_the_secret(web, answer, capfd, caplog):
    web.answers.append(answer)
    with caplog.at_level(logging.DEBUG, "apprise"):
        error = send_by_apprise(web.channel, message())
    assert str(answer) in error
    assert PASSWORD not in error + "".join(capfd.readouterr())


def test_an_address_that_nobody_listens_at_is_told_without_the_secret():
    error = send_by_apprise(AlertChannel(url=f"json://ops:{PASSWORD}@127.0.0.1:1/hook"), message())
    assert "127.0.0.1" in error or "Connection" in error
    assert PASSWORD not in error
    assert PASSWORD not in repr(AlertChannel(url=f"json://ops:{PASSWORD}@127.0.0.1:1/hook"))


def test_a_url_of_an_unknown_service_is_told():
    assert "apprise cannot use this URL" in send_by_apprise(AlertChannel(url="nobody://x"), message())


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def results(delivery, count):
    found = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += delivery.results()
        time.sleep(0.01)
    assert len(found) == count
    return found


CHANNELS = {name: AlertChannel(url=f"json://{name}") for name in ("mail", "pager")}


def test_a_dead_channel_delays_neither_the_caller_nor_another_channel():
    dead, sent = threading.Event(), Queue()

    def send(channel, alert):
        if channel is CHANNELS["pager"]:
            dead.wait(10)
        sent.put(alert.number)

    delivery = Delivery(send)
    begun = time.monotonic()
    delivery.offer([message(number, ("mail", "pager")) for number in (1, 2)], CHANNELS)
    assert time.monotonic() - begun < 1
    assert results(delivery, 2) == [Sent(1, "mail", None), Sent(2, "mail", None)]
    dead.set()
    delivery.stop()


def test_a_failed_delivery_is_tried_again_after_a_growing_pause():
    clock, tries = Clock(), Queue()

    def send(_channel, _message):
        tries.put(clock.now)
        return "no route"

    delivery = Delivery(send, clock)
    with capture_logs() as logs:
        delivery.offer([message()], CHANNELS)
        for _ in range(5):
            results(delivery, 1)
            for _ in range(60):
                clock.now += 5.0
                delivery.offer([message()], CHANNELS)
                time.sleep(0.02)
                if not tries.empty() and tries.queue[-1] == clock.now:
                    break
    delivery.stop()
    pauses = [
        round(after - before) for before, after in zip(tries.queue, list(tries.queue)[1:], strict=False)
    ]
    assert pauses[:4] == [5, 10, 20, 40]
    assert logs[0]["error"] == "no route"


def test_a_message_that_was_taken_is_not_sent_again_before_it_is_recorded():
    sent = Queue()
    delivery = Delivery(lambda _channel, alert: sent.put(alert.number))
    delivery.offer([message()], CHANNELS)
    results(delivery, 1)
    delivery.offer([message(), message(2)], CHANNELS)
    results(delivery, 1)
    assert list(sent.queue) == [1, 2]
    delivery.stop()


def test_an_error_of_a_services_code_is_a_failed_delivery_without_its_text():
    def send(_channel, _message):
        raise RuntimeError(PASSWORD)

    delivery = Delivery(send)
    delivery.offer([message()], CHANNELS)
    assert results(delivery, 1) == [Sent(1, "mail", "RuntimeError in the code for this service")]
    delivery.stop()


def test_a_controller_that_stops_leading_sends_nothing_more():
    begun, go_on, sent = threading.Event(), threading.Event(), Queue()

    def send(_channel, alert):
        begun.set()
        go_on.wait(10)
        sent.put(alert.number)

    delivery = Delivery(send)
    delivery.offer([message(1), message(2)], CHANNELS)
    begun.wait(10)
    delivery.stop()
    go_on.set()
    time.sleep(0.2)
    assert list(sent.queue) == [1]
    assert delivery.results() == []
