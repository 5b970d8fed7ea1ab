"""PostgreSQL over TLS only: Sluice's tables work, and a wrong server gets no password."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sluice.api import declarations
from sluice.commands import tables
from sluice_ops.doctor import reach
from sluice_ops.doctor.finding import Verdict
from sluice_ops.local.services.postgres import other_user, run_as
from tests.authority import Authority
from tests.lab import free_ports, until

pytestmark = pytest.mark.timeout(120)


def programs() -> Path:
    """Return the folder of a PostgreSQL with TLS; the embedded one has none."""
    servers = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not servers:
        pytest.skip("needs a PostgreSQL with TLS: apt install postgresql")
    return servers[-1].parent


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Authority, int]]:
    """Start a server that accepts only encrypted connections."""
    tools, (port,), user = programs(), free_ports(1), other_user()
    authority, data, secret = Authority(tmp_path, "ca"), tmp_path / "data", tmp_path / "secret"
    certificate, key = authority.sign("server")
    data.mkdir(mode=0o700)
    secret.write_text("s3cret")
    for path in (data, secret, Path(certificate), Path(key)):
        path.chmod(0o700 if path is data else 0o600)
        if user is not None:
            shutil.chown(path, user.pw_uid, user.pw_gid)
    prefix = run_as(user, (tmp_path, tools))
    words = [
        *prefix,
        tools / "initdb",
        "-D",
        data,
        "-U",
        "sluice",
        f"--pwfile={secret}",
        "--auth=scram-sha-256",
        "--no-sync",
    ]
    subprocess.run(words, check=True, capture_output=True, cwd="/")
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
    settings = {"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key, "unix_socket_directories": ""}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (tmp_path / "log").open("w") as log:
        words = [*prefix, tools / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), *options]
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd="/")
    try:
        until(
            "PostgreSQL accepts connections",
            lambda: "ready to accept connections" in (tmp_path / "log").read_text(),
            seconds=30,
        )
        yield authority, port
    finally:
        process.terminate()
        process.wait(30)


def test_tables_are_made_and_read_over_tls_from_the_right_server_only(
    server: tuple[Authority, int], tmp_path: Path
) -> None:
    authority, port = server
    place = f"127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert={authority.file}"
    url = f"postgresql://sluice:s3cret@{place}"
    assert "delivered" in tables.create(url, declarations.load("hits"))
    encrypted = "select ssl, version from pg_stat_ssl where pid = pg_backend_pid()"
    with psycopg.connect(url) as link:
        assert link.execute(encrypted).fetchone() == (True, "TLSv1.3")
    assert reach.check_postgres(url).verdict is Verdict.OK

    stranger = Authority(tmp_path, "stranger")
    for wrong, reason in (
        (url.replace("/ca.pem", f"/{stranger.file.name}"), "certificate verify failed"),
        (url.replace("@127.0.0.1:", "@localhost:"), "does not match host name"),
        (url.replace("sslmode=verify-full", "sslmode=disable"), "no pg_hba.conf entry"),
    ):
        with pytest.raises(psycopg.OperationalError, match=reason):
            psycopg.connect(wrong, connect_timeout=3)
        finding = reach.check_postgres(wrong)
        assert (finding.verdict, "s3cret" in finding.sentence) == (Verdict.BAD, False)
