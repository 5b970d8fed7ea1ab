"""Three ZooKeeper servers that vote, and links to them that a test can cut."""

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
    """Return ports that nobody listens on."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Ensemble:
    """Three servers, by number; `linked`, the third can be cut off from the others.

    Each then reaches the others by links. A server is called back by those of a higher number at the address that it has told, beside
    the links: so the last one starts when the others need nobody any more, and it calls them. One is dropped after `sync` silent seconds.

    With a `network` (tests/network.py) each server runs on the host of its number there.
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
        """Say where a server finds another one: for the leader's word, and for elections."""
        if linked and number != other:
            self.links[number, other] = made = [Link(port) for port in ports]
            ports = [link.port for link in made]
        return f"server.{other}={self.hosts[other]}:{ports[0]}:{ports[1]}\n"

    def hold(self, number, *, both_ways):
        """Hold up what the others say to a server; `both_ways`, also what it says to them. Nobody is told."""
        for (caller, called), made in self.links.items():
            for link in made:
                if called == number or (both_ways and caller == number):
                    link.there.clear()
                if caller == number or (both_ways and called == number):
                    link.back.clear()

    def release(self):
        """Let everything through."""
        for made in self.links.values():
            for link in made:
                link.there.set()
                link.back.set()

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
        """Return `leader`, `follower`, or None for one that does not serve."""
        with (
            suppress(OSError),
            socket.create_connection((self.hosts[number], self.clients[number]), timeout=1) as link,
        ):
            link.sendall(b"srvr")
            said = b"".join(iter(lambda: link.recv(65536), b"")).decode()
            return next((line.split()[1] for line in said.splitlines() if line.startswith("Mode:")), None)
        return None

    def leader(self, seconds=60):
        """Return which one leads, once one does."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = [number for number in self.running if self.mode(number) == "leader"]
            if found:
                return found[0]
            time.sleep(0.1)
        message = "no server leads: " + "; ".join(log.read_text()[-500:] for log in self.folder.glob("*.log"))
        raise AssertionError(message)

    def whole(self, seconds=60):
        """Wait until all three serve."""
        until = time.monotonic() + seconds
        while not all(self.mode(number) for number in SERVERS):
            assert time.monotonic() < until, "not all servers serve"
            time.sleep(0.1)

    def make(self, chroot):
        client = KazooClient(hosts=self.address)
        client.start(timeout=30)
        client.ensure_path(chroot)
        client.stop()
        client.close()

    def stop(self):
        self.kill(*self.running)
        for made in self.links.values():
            for link in made:
                link.close()


class Link:
    """A way to one server that can be cut, with all connections that go over it; or what they carry is held up, each way by itself."""

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = set()
        self._lock = threading.Lock()
        self.whole = True
        self.there, self.back = threading.Event(), threading.Event()
        self.there.set()
        self.back.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        with self._lock:
            self.whole = False
            left, self._open = self._open, set()
        for each in left:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self):
        self.whole = True

    def close(self):
        self.cut()
        self.there.set()
        self.back.set()
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self._target), timeout=5) as far:
            far.settimeout(None)
            with self._lock:
                if not self.whole:
                    return
                self._open |= {near, far}
            back = threading.Thread(target=self._carry, args=(far, near, self.back))
            back.start()
            self._carry(near, far, self.there)
            back.join()
            with self._lock:
                self._open -= {near, far}

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
    """Write below an address again and again; yield when each write was taken, by the monotonic clock."""
    taken, over = [], threading.Event()

    def write():
        with Channel(address) as channel:
            while not over.wait(0.02):
                with suppress(ChannelAwayError):
                    channel.put("/probe", EpochRecord(epoch=len(taken), leader="nobody"))
                    taken.append(time.monotonic())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()
