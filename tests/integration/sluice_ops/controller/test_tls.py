"""ZooKeeper over TLS with a test's own authority.

A client without a certificate, or with another authority, is refused.
"""

import gc
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.access import Role, Tls
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.site import credentials, endpoints
from sluice_ops.site.java import JAVA
from tests.authority import Authority
from tests.ensemble import free_ports

pytestmark = pytest.mark.timeout(300)
SETTINGS = """dataDir={folder}/data
secureClientPort={port}
secureClientPortAddress=127.0.0.1
admin.enableServer=false
tickTime=1000
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={folder}/ca.pem
ssl.trustStore.type=PEM
ssl.clientAuth=need
ssl.hostnameVerification=false
"""


@pytest.fixture
def site_endpoints(tmp_path):
    """Endpoints of a ZooKeeper server that accepts only TLS."""
    authority, (port,) = Authority(tmp_path, "ca"), free_ports(1)
    authority.sign("server")
    certificate, key = authority.sign("client")
    (tmp_path / "zoo.cfg").write_text(SETTINGS.format(folder=tmp_path, port=port))
    jars = Path(pyspark.__file__).parent / "jars/*"
    words = [
        JAVA,
        "-Xmx128m",
        "-cp",
        str(jars),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(tmp_path / "zoo.cfg"),
    ]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    access = credentials.make(tmp_path / "credentials")
    away = "127.0.0.1:1"
    yield endpoints.Endpoints(
        kafka=away,
        zookeeper=f"127.0.0.1:{port}/hits",
        postgres=f"postgresql://x@{away}/x",
        airflow=endpoints.AirflowEndpoint(url=f"http://{away}", user="x", password="x"),
        spark=f"spark://{away}",
        home=tmp_path,
        access=access.model_copy(
            update={"tls": Tls(ca=str(authority.file), certificate=certificate, key=key)}
        ),
    )
    server.terminate()
    server.wait(10)


def connected_channel(site_endpoints, seconds=150):
    deadline = time.monotonic() + seconds
    while True:
        try:
            credential = site_endpoints.required_credential(Role.ADMIN)
            return Channel(site_endpoints.zookeeper, credential).start(seconds=5)
        except ChannelAwayError:
            assert time.monotonic() < deadline, (site_endpoints.home / "log").read_text()[-3000:]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_roles_work_over_tls_and_other_clients_are_refused(site_endpoints, tmp_path):
    channel = connected_channel(site_endpoints)
    channel.put(paths.wanted("entry"), TierWanted(running=True))
    assert channel.read(paths.wanted("entry"), TierWanted).value.running
    channel.stop()
    stranger = Authority(tmp_path, "stranger")
    tls = site_endpoints.access.tls
    for wrong in (
        tls.model_copy(update={"ca": str(stranger.file)}),
        tls.model_copy(update={"certificate": None, "key": None}),
        None,
    ):
        other = site_endpoints.model_copy(
            update={"access": site_endpoints.access.model_copy(update={"tls": wrong})}
        )
        with pytest.raises(ChannelAwayError, match="does not answer"):
            Channel(other.zookeeper, other.required_credential(Role.ADMIN)).start(seconds=2)
    gc.collect()  # kazoo leaves sockets of refused TLS connections open
