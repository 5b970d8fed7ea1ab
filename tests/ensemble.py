"""A ZooKeeper ensemble of three servers, and links to them that a test can cut."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from kazoo.client import KazooClient

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model.change import EpochRecord
from sluice_ops.site.java import JAVA

JARS = Path(pyspark.__file__).parent / "jars/*"
SERVERS = (1, 2, 3)
CONFIG = """dataDir={data}
clientPort={client}
clientPortAddress={address}
tickTime=1000
maxSessionTimeout=60000
initLimit=10
syncLimit={sync}
admin.enableServer=false
4lw.commands.whitelist=srvr
"""


def free_ports(count):
    """Return ports that are free now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Ensemble:
    """Three servers, by number; with `linked`, the third can be cut off from the others.

    A linked server reaches the others through links. A server is called back by servers with a
    higher number at its announced address, past the links. So the last server starts after the
    others have a leader, and calls them. A follower that is silent for `sync` ticks of a second is
    dropped.

    With a `network` (tests/network.py), each server runs on the host of its number.
    """

    def __init__(self, folder, *, linked=False, sync=5, network=None):
        ports = free_ports(9)
        self.folder, self.running, self.links = folder, {}, {}
        self.hosts = {
            number: "127.0.0.1" if network is None else network.address(number) for number in SERVERS
        }
        self.inside = {number: [] if network is None else network.inside(number) for number in SERVERS}
        self.clients = dict(zip(SERVERS, ports, strict=False))
        for number in SERVERS:
            data = folder / str(number)
            data.mkdir()
            (data / "myid").write_text(str(number))
            peers = "".join(
                self._peer(number, other, (ports[2 + other], ports[5 + other]), linked=linked)
                for other in SERVERS
            )
            (data / "zoo.cfg").write_text(self._config(data, number, sync) + peers)
            if linked and number == SERVERS[-1]:
                self.leader()
            self.start(number)

    def _config(self, data, number, sync):
        return CONFIG.format(data=data, client=self.clients[number], address=self.hosts[number], sync=sync)

    def _peer(self, number, other, ports, *, linked):
        """Return the line that tells a server where to find another: ports for the leader and for
        elections.
        """
        if linked and number != other:
            self.links[number, other] = links = [Link(port) for port in ports]
            ports = [link.port for link in links]
        return f"server.{other}={self.hosts[other]}:{ports[0]}:{ports[1]}\n"

    def hold(self, number, *, both_ways):
        """Hold messages to a server back; with `both_ways`, also messages from it.

        No side gets an error.
        """
        for (caller, called), links in self.links.items():
            for link in links:
                if called == number or (both_ways and caller == number):
                    link.forward.clear()
                if caller == number or (both_ways and called == number):
                    link.backward.clear()

    def release(self):
        """Forward all held messages."""
        for links in self.links.values():
            for link in links:
                link.forward.set()
                link.backward.set()

    @property
    def address(self):
        return ",".join(f"{self.hosts[number]}:{port}" for number, port in self.clients.items())

    def start(self, number):
        words = [
            *self.inside[number],
            JAVA,
            "-Xmx96m",
            "-cp",
            str(JARS),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        ]
        with (self.folder / f"server{number}.log").open("a") as log:
            self.running[number] = subprocess.Popen(
                [*words, str(self.folder / str(number) / "zoo.cfg")], stdout=log, stderr=log
            )

    def kill(self, *numbers):
        for number in numbers:
            process = self.running.pop(number)
            process.kill()
            process.wait()

    def signal(self, which, *numbers):
        for number in numbers:
            self.running[number].send_signal(which)

    def mode(self, number):
        """Return `leader`, `follower`, or None if the server does not serve."""
        with (
            suppress(OSError),
            socket.create_connection((self.hosts[number], self.clients[number]), timeout=1) as link,
        ):
            link.sendall(b"srvr")
            answer = b"".join(iter(lambda: link.recv(65536), b"")).decode()
            return next((line.split()[1] for line in answer.splitlines() if line.startswith("Mode:")), None)
        return None

    def leader(self, seconds=60):
        """Wait for a leader; return its number."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            leaders = [number for number in self.running if self.mode(number) == "leader"]
            if leaders:
                return leaders[0]
            time.sleep(0.1)
        message = "no server leads: " + "; ".join(log.read_text()[-500:] for log in self.folder.glob("*.log"))
        raise AssertionError(message)

    def wait_until_serving(self, seconds=60):
        """Wait until all three servers serve."""
        deadline = time.monotonic() + seconds
        while not all(self.mode(number) for number in SERVERS):
            assert time.monotonic() < deadline, "not all servers serve"
            time.sleep(0.1)

    def make_path(self, chroot):
        client = KazooClient(hosts=self.address)
        client.start(timeout=30)
        client.ensure_path(chroot)
        client.stop()
        client.close()

    def stop(self):
        self.kill(*self.running)
        for links in self.links.values():
            for link in links:
                link.close()


class Link:
    """A proxy to one server.

    `cut` ends it with all its connections. `forward` and `backward`, when cleared, hold the data of
    one direction back.
    """

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._connections = set()
        self._lock = threading.Lock()
        self.is_open = True
        self.forward, self.backward = threading.Event(), threading.Event()
        self.forward.set()
        self.backward.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        with self._lock:
            self.is_open = False
            connections, self._connections = self._connections, set()
        for each in connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self):
        self.is_open = True

    def close(self):
        self.cut()
        self.forward.set()
        self.backward.set()
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with (
            client,
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self._target), timeout=5) as server,
        ):
            server.settimeout(None)
            with self._lock:
                if not self.is_open:
                    return
                self._connections |= {client, server}
            back = threading.Thread(target=self._carry, args=(server, client, self.backward))
            back.start()
            self._carry(client, server, self.forward)
            back.join()
            with self._lock:
                self._connections -= {client, server}

    @staticmethod
    def _carry(source, sink, flows):
        with suppress(OSError):
            while data := source.recv(65536):
                flows.wait()
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def writing(address) -> Iterator[list[float]]:
    """Write below an address again and again.

    Yield the times of successful writes, by the monotonic clock.
    """
    write_times, stopped = [], threading.Event()

    def write():
        with Channel(address) as channel:
            while not stopped.wait(0.02):
                with suppress(ChannelAwayError):
                    channel.put("/probe", EpochRecord(epoch=len(write_times), leader="nobody"))
                    write_times.append(time.monotonic())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield write_times
    finally:
        stopped.set()
        thread.join()
