"""`python -m sluice_ops.controller --site site.yaml [--name c1]` runs one controller.

Start several controllers: one of them leads, the others stand by.
"""

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import structlog

from sluice_ops.channel import Channel, ChannelAwayError, NotAllowedError
from sluice_ops.controller.leader import LOST_SECONDS, Controller, collect_rarely
from sluice_ops.controller.site_watcher import SiteWatcher
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exporter import Exporter
from sluice_ops.operations.log_requests import LogServer
from sluice_ops.process import metrics_server
from sluice_ops.process.logs import OwnLog, configure_logs
from sluice_ops.site import endpoints, project, site_file

log = structlog.get_logger()

LARGEST_PORT = 65535


def listen_address(text: str) -> str:
    """Return `host:port` unchanged; ArgumentTypeError if the text is no address."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > LARGEST_PORT:
        message = f"{text!r}: is no address; write host:port, such as 10.0.0.5:9464"
        raise argparse.ArgumentTypeError(message)
    return text


def main() -> int:
    """Run until SIGTERM or SIGINT.

    Return 2 for wrong settings, 1 if ZooKeeper cannot be used, else 0.
    """
    parser = argparse.ArgumentParser(prog="sluice_ops.controller", description=__doc__)
    parser.add_argument("--site", type=Path, default=project.site_path(), help="the site file")
    parser.add_argument(
        "--name",
        default=f"{socket.gethostname()}-{os.getpid()}",
        help="the name of this controller in logs and in the status",
    )
    parser.add_argument(
        "--zookeeper",
        help="host:port/chroot of a ZooKeeper without access control; default: "
        "`zookeeper` in the endpoints file",
    )
    parser.add_argument(
        "--metrics",
        type=listen_address,
        default="127.0.0.1:0",
        help="host:port on which Prometheus reads this controller's metrics; port 0: any free port",
    )
    parser.add_argument(
        "--lost-seconds",
        type=float,
        default=LOST_SECONDS,
        help="seconds without an agent's session after which its host counts as lost",
    )
    options = parser.parse_args()
    own_log = OwnLog()
    configure_logs(own_log)
    try:
        site_watcher = SiteWatcher(options.site)
        where = None if options.zookeeper else endpoints.load()
        address, credential = (
            (endpoints.check_zookeeper(options.zookeeper), None)
            if where is None
            else (where.zookeeper, where.required_credential(Role.CONTROLLER))
        )
    except (site_file.SiteError, endpoints.EndpointsError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    collect_rarely()
    channel = Channel(address, credential)
    controller = Controller(
        channel,
        options.name,
        lambda: site_watcher.rules,
        options.lost_seconds,
        credential,
        certificates=() if where is None else where.certificates,
    )
    threading.Thread(
        target=site_watcher.follow, args=(controller.wake,), name="site file", daemon=True
    ).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: controller.stop())
    try:
        channel.start()
    except NotAllowedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except ChannelAwayError as error:
        sys.stderr.write(f"{error}; start ZooKeeper, or correct `zookeeper` in the endpoints file\n")
        return 1
    metrics_server.serve(
        channel,
        Exporter(role=Role.CONTROLLER, address=options.metrics, controller=options.name),
        controller.metrics,
    )
    LogServer(channel, paths.CONTROLLER_LOGS, options.name, own_log).start()
    try:
        controller.run()
    finally:
        channel.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
