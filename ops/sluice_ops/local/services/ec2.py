"""EC2 on this machine: the server of moto."""

import urllib.request

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.start.service import Program, Service


def service(layout: Layout) -> Service:
    """Return the service."""
    port = layout.ports.ec2

    def ready() -> None:
        urllib.request.urlopen(f"http://{ADDRESS}:{port}/moto-api/config", timeout=3).close()

    command = (str(layout.python.parent / "moto_server"), "-H", ADDRESS, "-p", str(port))
    return Service("ec2", Program(command, nice=5), ready, ports=(port,))
