"""ZooKeeper: one server from pyspark's jars. It holds the channel, which carries all decisions."""

import logging
import socket

from kazoo.client import KazooClient

from sluice_ops.channel import Channel, access_lists
from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.services import jvm
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.model.access import Role
from sluice_ops.site import credentials
from sluice_ops.site.java import JAVA

JARS = (
    "zookeeper-*.jar", "slf4j-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar", "snappy-java-*.jar", "javax.servlet-api-*.jar", "commons-cli-*.jar",
    "commons-io-*.jar", "netty-*.jar",
)  # fmt: skip
REFUSED = """\
appender.refused.type = RollingFile
appender.refused.name = refused
appender.refused.fileName = ${sys:sluice.refused}
appender.refused.filePattern = ${sys:sluice.refused}.%i
appender.refused.layout.type = PatternLayout
appender.refused.layout.pattern = %d{yyyy-MM-dd HH:mm:ss}\\t%enc{%m}{CRLF}%n
appender.refused.policies.type = Policies
appender.refused.policies.size.type = SizeBasedTriggeringPolicy
appender.refused.policies.size.size = 5MB
appender.refused.strategy.type = DefaultRolloverStrategy
appender.refused.strategy.max = 1
logger.refused.name = org.apache.zookeeper.audit
logger.refused.level = error
logger.refused.additivity = false
logger.refused.appenderRef.refused.ref = refused
"""
"""Logging of refused requests from ZooKeeper's audit log: user, address and node.

For a refused transaction, the log does not name the nodes.
"""


def make_chroot(hosts: str, chroot: str) -> None:
    """Create a pipeline's chroot if it does not exist; connections below the chroot cannot."""
    silent = logging.getLogger("sluice.platform.zookeeper")  # kazoo would log the close as a lost connection
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = KazooClient(hosts=hosts, logger=silent)
    client.start(timeout=15)
    try:
        client.ensure_path(chroot)
    finally:
        client.stop()
        client.close()


def send_command(port: int, word: str) -> str:
    """Send one of ZooKeeper's four-letter commands, and return the response."""
    with socket.create_connection((ADDRESS, port), timeout=5) as link:
        link.sendall(word.encode())
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def service(layout: Layout, pipeline: str, heap: int = 96, *, guarded: bool = True) -> Service:
    """Return the server as a service, with the chroot of `pipeline` and `heap` MiB of heap.

    `guarded`: the nodes below the chroot have access lists.
    """
    config, port = layout.conf / "zoo.cfg", layout.ports.zookeeper

    def prepare() -> None:
        config.write_text(
            f"dataDir={layout.data / 'zookeeper'}\nclientPort={port}\nclientPortAddress={ADDRESS}\n"
            "tickTime=1000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=ruok,srvr,mntr\n"
            "autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\npreAllocSize=4096\n"
            f"audit.enable={str(guarded).lower()}\n"
        )

    def ready() -> None:
        if send_command(port, "ruok") != "imok":
            message = "ZooKeeper does not answer the command ruok with imok"
            raise NotReadyError(message)

    def after() -> None:
        address, chroot = f"{ADDRESS}:{port}", f"/sluice/{pipeline}"
        make_chroot(address, chroot)
        if guarded:
            with Channel(
                address + chroot, credentials.make(layout.credentials).credential(Role.ADMIN)
            ) as channel:
                access_lists.apply(channel.kazoo)

    logs = jvm.log_config(layout, "zookeeper-log4j2", REFUSED)
    command = (
        str(JAVA), *jvm.options(layout, "zookeeper", heap, logs=logs),
        f"-Dsluice.refused={layout.logs / 'refused.log'}", "-cp", jvm.classpath(layout.spark_jars, *JARS),
        "org.apache.zookeeper.server.ZooKeeperServerMain", str(config),
    )  # fmt: skip
    return Service("zookeeper", Program(command, nice=-5), ready, prepare, after, ports=(port,))
