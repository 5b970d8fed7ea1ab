"""Alerts reach a real mail server and a real web server, once for each try, and say what an
operator needs.
"""

import asyncio
import json
import ssl
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import yaml
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from sluice_airflow.notifiers import alerts as notifier
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_ops.doctor.alerts import check
from sluice_ops.doctor.finding import Verdict
from tests.authority import Authority
from tests.integration.sluice_airflow.conftest import ROOT, free_port

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Mailbox:
    def __init__(self):
        self.mails, self.logins = [], []

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
        self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content)))
        return "250 OK"

    def authenticate(self, _server, _session, _envelope, _mechanism, login):
        self.logins.append((login.login.decode(), login.password.decode()))
        return AuthResult(success=True)


@pytest.fixture
def mailbox():
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    box.address = f"127.0.0.1:{controller.port}"
    yield box
    controller.stop()


@pytest.fixture
def tls_mailbox(tmp_path):
    """A mail server that accepts mail only over STARTTLS and with a login."""
    authority, box = Authority(tmp_path, "ca"), Mailbox()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("mail")[0])
    controller = Controller(
        box,
        hostname="127.0.0.1",
        port=free_port(),
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=box.authenticate,
    )
    controller.start()
    box.port, box.ca = controller.port, str(authority.file)
    yield box
    controller.stop()


def set_connection(monkeypatch, name, **settings):
    """Create an Airflow connection."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "generic", **settings}))


def test_mail_with_a_login_goes_to_the_right_server_only(tls_mailbox, alerts_to, monkeypatch, tmp_path):
    login = {"login": "me", "password": "s3cret", "port": tls_mailbox.port}
    alerts_to(email_to=["ops@example.org"], smtp="conn:our_mail")
    refused = [
        ({"host": "127.0.0.1"}, "certificate verify failed: unable to get local issuer certificate"),
        (
            {"host": "127.0.0.1", "extra": {"ca": str(Authority(tmp_path, "stranger").file)}},
            "certificate verify failed",
        ),
        ({"host": "localhost", "extra": {"ca": tls_mailbox.ca}}, "Hostname mismatch"),
    ]
    for number, (server, reason) in enumerate(refused, start=1):
        set_connection(monkeypatch, "our_mail", **login, **server)
        with pytest.raises(ConnectionError, match=reason):
            NOTIFIER.notify(failed(number))
    assert tls_mailbox.logins == [], "a server with a wrong certificate gets no password"
    set_connection(monkeypatch, "our_mail", **login, host="127.0.0.1", extra={"ca": tls_mailbox.ca})
    NOTIFIER.notify(failed(9))
    assert tls_mailbox.logins == [("me", "s3cret")]
    assert [to for to, _ in tls_mailbox.mails] == [["ops@example.org"]]


def test_a_webhook_of_a_connection_gets_its_token(web, alerts_to, monkeypatch):
    alerts_to(webhook="conn:our_hook")
    set_connection(monkeypatch, "our_hook", host=web.url, password="t0ken")
    NOTIFIER.notify(failed())
    asyncio.run(NOTIFIER.async_notify(failed(2)))
    assert web.tokens == ["Bearer t0ken"] * 2
    assert [post["attempt"] for post in web.posts] == [1, 2]


def test_a_connection_that_does_not_exist_is_named(alerts_to):
    alerts_to(webhook="conn:nobodys")
    with pytest.raises(ConnectionError, match=r"webhook: .*nobodys.*`alerts:` in the site file"):
        NOTIFIER.notify(failed())


@pytest.fixture
def web():
    posts, tokens = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            tokens.append(self.headers["Authorization"])
            posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield SimpleNamespace(posts=posts, tokens=tokens, url=f"http://127.0.0.1:{server.server_port}/alerts")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def alerts_to(tmp_path, monkeypatch):
    def write(**alerts):
        site = yaml.safe_load((ROOT / "site.yaml").read_text())
        path = tmp_path / "site.yaml"
        path.write_text(yaml.safe_dump({**site, "alerts": alerts}))
        monkeypatch.setenv("SLUICE_SITE", str(path))
        monkeypatch.setenv("SLUICE_HOME", str(tmp_path))

    return write


def failed(attempt=1):
    task = SimpleNamespace(
        dag_id="drain_host",
        run_id="manual__1",
        task_id="cut_over",
        try_number=attempt,
        log_url="http://airflow/log",
    )
    return {"ti": task, "exception": RuntimeError("tier counts did not pause within 30 s")}


NOTIFIER = SluiceNotifier(did="The change is being aborted.", do="Trigger it again.")


def test_an_alert_says_what_happened_what_was_done_and_what_to_do(mailbox, web, alerts_to):
    alerts_to(email_to=["ops@example.org", "night@example.org"], smtp=mailbox.address, webhook=web.url)
    NOTIFIER.notify(failed())
    ((to, mail),) = mailbox.mails
    assert to == ["ops@example.org", "night@example.org"]
    assert mail["Subject"] == "[sluice] drain_host: cut_over failed"
    text = mail.get_payload(decode=True).decode()
    for part in (
        "tier counts did not pause within 30 s",
        "The change is being aborted.",
        "Trigger it again.",
        "http://airflow/log",
    ):
        assert part in text
    (post,) = web.posts
    assert (post["dag"], post["task"], post["attempt"]) == ("drain_host", "cut_over", 1)
    assert "did not pause" in post["happened"]


def test_the_same_try_alerts_once_and_the_next_try_again(mailbox, alerts_to):
    alerts_to(email_to=["ops@example.org"], smtp=mailbox.address)
    for attempt in (1, 1, 2, 2, 1):
        NOTIFIER.notify(failed(attempt))
    assert len(mailbox.mails) == 2


def test_the_triggerer_sends_the_same_alert(web, alerts_to):
    alerts_to(webhook=web.url)
    asyncio.run(NOTIFIER.async_notify(failed()))
    NOTIFIER.notify(failed())
    assert len(web.posts) == 1


def test_an_unsent_alert_names_its_file_and_the_next_callback_sends_it(web, mailbox, alerts_to, tmp_path):
    alerts_to(webhook=f"http://127.0.0.1:{free_port()}/", email_to=["ops@example.org"], smtp=mailbox.address)
    with pytest.raises(ConnectionError, match=r"webhook.*`alerts:` in the site file"):
        NOTIFIER.notify(failed())
    assert len(mailbox.mails) == 1, "a failing webhook does not stop the mail"
    (path,) = (tmp_path / "alerts").iterdir()
    assert json.loads(path.read_text())["unsent"] == ["webhook"], "the unsent alert is kept"
    (finding,) = check(tmp_path)
    assert finding.sentence.startswith("unsent alerts: 1 (webhook) since ")
    assert "[sluice] drain_host: cut_over failed; webhook: <urlopen error" in finding.sentence
    alerts_to(webhook=web.url, email_to=["ops@example.org"], smtp=mailbox.address)
    for _ in range(2):
        NOTIFIER.notify(failed())
    assert (len(web.posts), len(mailbox.mails)) == (1, 1), "only the unsent alert is sent, and once"
    assert json.loads(path.read_text())["unsent"] == []
    assert [finding.verdict for finding in check(tmp_path)] == [Verdict.OK]


def test_sending_is_retried_while_the_server_starts(mailbox, alerts_to, monkeypatch):
    alerts_to(email_to=["ops@example.org"], smtp=mailbox.address)
    send, tries = notifier.ADDRESSES["e-mail"], []

    def refused_once(*message):
        tries.append(message)
        if len(tries) == 1:
            raise ConnectionRefusedError
        send(*message)

    monkeypatch.setitem(notifier.ADDRESSES, "e-mail", refused_once)
    NOTIFIER.notify(failed())
    assert (len(tries), len(mailbox.mails)) == (2, 1)


def test_without_an_address_the_alert_is_kept_in_a_file(tmp_path, alerts_to):
    alerts_to()
    NOTIFIER.notify(failed())
    (path,) = (tmp_path / "alerts").iterdir()
    assert json.loads(path.read_text())["subject"] == "[sluice] drain_host: cut_over failed"


def test_a_callback_that_knows_little_still_alerts(tmp_path, alerts_to):
    alerts_to()
    NOTIFIER.notify(
        {"dag": SimpleNamespace(dag_id="drain_host"), "run_id": "manual__1", "reason": "task_failure"}
    )
    (path,) = (tmp_path / "alerts").iterdir()
    assert "task_failure" in json.loads(path.read_text())["happened"]


def test_an_alert_that_cannot_be_kept_is_sent_all_the_same(web, tmp_path, alerts_to, monkeypatch):
    alerts_to(webhook=web.url)
    (tmp_path / "home").write_text("a file where the folder should be")
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "home"))
    NOTIFIER.notify(failed())
    assert len(web.posts) == 1
