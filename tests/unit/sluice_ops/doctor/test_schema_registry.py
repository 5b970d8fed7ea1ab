"""The doctors' check of the schema registry."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import ValidationError

from sluice_ops.doctor.finding import Verdict
from sluice_ops.doctor.schema_registry import check
from sluice_ops.site.site_file import Site
from tests.http_service import Quiet, serving


class Answer(Quiet, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/subjects": b'["hits-value"]', "/other/subjects": b"{}"}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")


@pytest.fixture
def address() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answer)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def site(registry: str | None) -> Site:
    return Site(pipeline="hits", hosts=(), schema_registry=registry)


@pytest.mark.parametrize(
    ("path", "verdict", "sentence"),
    [
        ("", Verdict.OK, "it has 1 subjects"),
        ("/other", Verdict.BAD, "is no schema registry"),
        ("/nowhere", Verdict.BAD, "404"),
    ],
)
def test_a_registry_is_asked_for_its_subjects(
    address: str, path: str, verdict: Verdict, sentence: str
) -> None:
    (finding,) = check(site(address + path))
    assert finding.verdict is verdict
    assert sentence in finding.sentence
    assert ("correct `schema_registry`" in finding.advice) is (verdict is Verdict.BAD)


def test_a_site_without_registry_has_no_finding() -> None:
    assert [*check(site(None))] == []


@pytest.mark.parametrize("wrong", ["registry:8081", "http://user:word@host", "http://host/", "ftp://host"])
def test_an_unusable_address_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError):
        site(wrong)
