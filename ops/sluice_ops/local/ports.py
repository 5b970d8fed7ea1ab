"""Find out whether a port is free, and which process holds it."""

import socket

import psutil

from sluice_ops.local.layout import ADDRESS


def free(port: int) -> bool:
    """Return True if a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def holder(port: int) -> str:
    """Describe the process that listens on the port, as far as this user may see it."""
    try:
        for link in psutil.net_connections("tcp"):
            if (
                link.status == psutil.CONN_LISTEN
                and link.laddr
                and link.laddr.port == port
                and link.pid is not None
            ):
                process = psutil.Process(link.pid)
                return f"{process.name()} (pid {process.pid}, of {process.username()})"
    except psutil.Error:
        pass
    return "a process of another user"


def taken(wanted: dict[str, int]) -> list[str]:
    """Return a sentence for each port that another process holds; `wanted`: name → port."""
    return [
        f"port {port} ({name}) is taken by {holder(port)}" for name, port in wanted.items() if not free(port)
    ]
