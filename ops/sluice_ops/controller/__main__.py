"""`python -m sluice_ops.controller --site site.yaml [--name c1]`: run one controller; start several, and one of them leads."""

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import structlog

from sluice_ops.channel import Channel, ChannelAwayError, NotAllowedError
from sluice_ops.controller.leader import LOST_SECONDS, Controller, collect_seldom
from sluice_ops.controller.site_watcher import Rulebook
from sluice_ops.model.access import Role
from sluice_ops.model.exporter import Exporter
from sluice_ops.process import metrics_server
from sluice_ops.site import endpoints, site_file

log = structlog.get_logger()

LARGEST_PORT = 65535


def where_to_listen(text: str) -> str:
    """Check an address of the command line."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > LARGEST_PORT:
        message = f"{text!r}: write it like 10.0.0.5:9464"
        raise argparse.ArgumentTypeError(message)
    return text


def main() -> int:
    """Read the settings, connect, and serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="sluice_ops.controller", description=__doc__)
    parser.add_argument(
        "--site", type=Path, default=Path(os.environ.get("SLUICE_SITE", "site.yaml")), help="the site file"
    )
    parser.add_argument(
        "--name",
        default=f"{socket.gethostname()}-{os.getpid()}",
        help="how this controller is called in logs and status",
    )
    parser.add_argument(
        "--zookeeper",
        help="host:port/chroot of a channel that is open to all; without it, the endpoints file's",
    )
    parser.add_argument(
        "--metrics",
        type=where_to_listen,
        default="127.0.0.1:0",
        help="host:port of its figures; port 0: a free one",
    )
    parser.add_argument(
        "--lost-seconds",
        type=float,
        default=LOST_SECONDS,
        help="how long an agent may be away before its host is lost",
    )
    options = parser.parse_args()
    try:
        book = Rulebook(options.site)
        where = None if options.zookeeper else endpoints.load()
        address, credential = (
            (endpoints.ensemble(options.zookeeper), None)
            if where is None
            else (where.zookeeper, where.needed(Role.CONTROLLER))
        )
    except (site_file.SiteError, endpoints.EndpointsError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    collect_seldom()
    channel = Channel(address, credential)
    controller = Controller(channel, options.name, lambda: book.rules, options.lost_seconds, credential)
    threading.Thread(target=book.follow, args=(controller.wake,), name="site file", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: controller.stop())
    try:
        channel.start()
    except NotAllowedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except ChannelAwayError as error:
        sys.stderr.write(f"{error}; start it, or correct `zookeeper` in the endpoints file\n")
        return 1
    metrics_server.serve(
        channel,
        Exporter(role=Role.CONTROLLER, address=options.metrics, controller=options.name),
        controller.metrics,
    )
    try:
        controller.run()
    finally:
        channel.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
