"""The metrics of a source, as Prometheus reads them."""

import argparse
import time
from collections import Counter
from urllib.request import urlopen

import pytest

from sluice.ingest import source_metrics
from sluice.ingest.followed_files import FollowedFiles
from sluice.ingest.process import metrics_address
from sluice.ingest.source import SourceError
from sluice.ingest.source_metrics import SourceMetrics, Written
from tests.lab import free_ports


def test_prometheus_reads_the_counts_of_a_source():
    written = Written()
    written.add([b"one", b"three"])
    metrics = SourceMetrics("web", written, [("waiting_bytes", "Waiting.", lambda: 7)], Counter({429: 2}))
    (port,) = free_ports(1)
    source_metrics.serve(f"127.0.0.1:{port}").register(metrics)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert {
        'sluice_source_records_total{source="web"} 2.0',
        'sluice_source_bytes_total{source="web"} 8.0',
        'sluice_source_refusals_total{source="web"} 0.0',
        'sluice_source_waiting_bytes{source="web"} 7.0',
        'sluice_source_answers_total{source="web",status="429"} 2.0',
    } <= set(lines)
    with pytest.raises(SourceError, match=f"metrics cannot be served at 127.0.0.1:{port}: Address already"):
        source_metrics.serve(f"127.0.0.1:{port}")


def test_without_an_address_nothing_is_served(monkeypatch):
    monkeypatch.setattr(source_metrics, "start_http_server", None)
    source_metrics.serve(None).register(SourceMetrics("web", Written(), []))


@pytest.mark.parametrize("text", ["9464", ":9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_a_wrong_address_is_refused_with_an_example(text):
    with pytest.raises(argparse.ArgumentTypeError, match="give HOST:PORT, such as"):
        metrics_address(text)


def test_bytes_that_are_not_committed_count_as_unread(tmp_path):
    (tmp_path / "web.log").write_text("one\ntwo\nthr")
    files = FollowedFiles(
        [str(tmp_path / "*.log")], [], line_bytes=100, clock=time.monotonic, wall_clock=time.time
    )
    files.look()
    assert (files.open_files, files.unread_bytes) == (1, 11)
    batch = files.read(100)
    assert files.unread_bytes == 11
    files.done(batch)
    assert files.unread_bytes == len("thr")
    files.close()
