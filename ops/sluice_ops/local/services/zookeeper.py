"""ZooKeeper, the one channel through which every step speaks: one server, out of pyspark's jars."""

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
    "zookeeper-*.jar", "slf4j-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar", "metrics-core-*.jar",
    "snappy-java-*.jar", "javax.servlet-api-*.jar", "commons-cli-*.jar", "commons-io-*.jar", "netty-*.jar",
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
"""Of ZooKeeper's audit log what was not done: who wanted it, from where, and with which node; of several at once it does not name them."""


def make_chroot(hosts: str, chroot: str) -> None:
    """Make a pipeline's chroot, which none of its own connections can; one that is there is fine."""
    silent = logging.getLogger(
        "sluice.platform.zookeeper"
    )  # a connection that we close is no news to the user
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = KazooClient(hosts=hosts, logger=silent)
    client.start(timeout=15)
    try:
        client.ensure_path(chroot)
    finally:
        client.stop()
        client.close()


def ask(port: int, word: str) -> str:
    """Ask the server one of its four-letter words."""
    with socket.create_connection((ADDRESS, port), timeout=5) as link:
        link.sendall(word.encode())
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def service(where: Layout, pipeline: str, heap: int = 96, *, guarded: bool = True) -> Service:
    """Describe the server, with the chroot of `pipeline` and `heap` MiB; `guarded`, what is below that has the table's access lists."""
    config, port = where.conf / "zoo.cfg", where.ports.zookeeper

    def prepare() -> None:
        config.write_text(
            f"dataDir={where.data / 'zookeeper'}\nclientPort={port}\nclientPortAddress={ADDRESS}\n"
            "tickTime=1000\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,srvr,mntr\n"
            f"autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\npreAllocSize=4096\naudit.enable={str(guarded).lower()}\n"
        )

    def ready() -> None:
        if ask(port, "ruok") != "imok":
            message = "ruok was not answered with imok"
            raise NotReadyError(message)

    def after() -> None:
        address, chroot = f"{ADDRESS}:{port}", f"/sluice/{pipeline}"
        make_chroot(address, chroot)
        if guarded:
            with Channel(
                address + chroot, credentials.make(where.credentials).credential(Role.ADMIN)
            ) as channel:
                access_lists.apply(channel.kazoo)

    logs = jvm.log_config(where, "zookeeper-log4j2", REFUSED)
    command = (
        str(JAVA), *jvm.options(where, "zookeeper", heap, logs=logs), f"-Dsluice.refused={where.logs / 'refused.log'}",
        "-cp", jvm.classpath(where.spark_jars, *JARS), "org.apache.zookeeper.server.ZooKeeperServerMain", str(config),
    )  # fmt: skip
    return Service("zookeeper", Program(command, nice=-5), ready, prepare, after, ports=(port,))
