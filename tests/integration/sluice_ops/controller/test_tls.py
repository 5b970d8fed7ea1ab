"""ZooKeeper over TLS, with certificates of the test's own authority: who has none of its own, or trusts another one, gets nowhere."""

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
def place(tmp_path):
    """A ZooKeeper that takes TLS only, and endpoints that know how."""
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


def started(place, seconds=150):
    until = time.monotonic() + seconds
    while True:
        try:
            return Channel(place.zookeeper, place.needed(Role.ADMIN)).start(seconds=5)
        except ChannelAwayError:
            assert time.monotonic() < until, (place.home / "log").read_text()[-3000:]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_over_tls_roles_work_as_in_the_clear_and_nobody_else_is_served(place, tmp_path):
    channel = started(place)
    channel.put(paths.wanted("entry"), TierWanted(running=True))
    assert channel.read(paths.wanted("entry"), TierWanted).value.running
    channel.stop()
    stranger = Authority(tmp_path, "stranger")
    tls = place.access.tls
    for wrong in (
        tls.model_copy(update={"ca": str(stranger.file)}),
        tls.model_copy(update={"certificate": None, "key": None}),
        None,
    ):
        other = place.model_copy(update={"access": place.access.model_copy(update={"tls": wrong})})
        with pytest.raises(ChannelAwayError, match="does not answer"):
            Channel(other.zookeeper, other.needed(Role.ADMIN)).start(seconds=2)
    gc.collect()  # kazoo leaves sockets behind on which TLS was refused
