"""A file system that loses unsynced data, as a machine does that loses its power.

The file system is a small FUSE server in a process of its own. It needs root and /dev/fuse, and
speaks the kernel's protocol itself (linux/fuse.h), so nothing has to be installed.

After each change it records what a power loss at that moment would leave. Real file systems lie
between two outcomes:

- `names`: a name is kept at once, content only after it was synced. A file comes back empty.
- `nothing`: a name too is kept only after its folder was synced.
"""

import ctypes
import errno
import json
import os
import select
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["names", "nothing"]
OUTCOMES: tuple[Outcome, ...] = ("names", "nothing")
NEEDS = "the file system that loses unsynced data needs root and /dev/fuse"
AVAILABLE = os.geteuid() == 0 and os.access("/dev/fuse", os.W_OK)
LARGEST = 1 << 20
DETACH = 2
LONG = 8


@dataclass
class Node:
    """A file, or a folder."""

    content: bytearray | None = None
    """None for a folder."""
    names: dict[str, "Node"] = field(default_factory=dict)
    synced: bytes = b""
    synced_names: dict[str, "Node"] = field(default_factory=dict)
    mode: int = 0o755

    def left(self, outcome: Outcome) -> Any:
        """Return what a power loss leaves.

        A folder returns its names with their contents, a file its content.
        """
        if self.content is not None:
            return self.synced.decode("latin-1")
        names = self.names if outcome == "names" else self.synced_names
        return {name: node.left(outcome) for name, node in names.items()}

    def sync(self) -> None:
        if self.content is None:
            self.synced_names = dict(self.names)
        else:
            self.synced = bytes(self.content)


class Server:
    """Answers the kernel's requests for one mounted file system."""

    def __init__(self, device: int) -> None:
        """Serve an empty folder."""
        self._device = device
        self._nodes = {1: Node()}
        self._numbers = {id(self._nodes[1]): 1}
        self.moments: list[dict[Outcome, Any]] = []
        """What a power loss would leave after each change."""
        self.changed()

    def changed(self) -> None:
        """Record what a power loss after this change would leave."""
        self.moments.append({outcome: self._nodes[1].left(outcome) for outcome in OUTCOMES})

    def serve(self) -> None:
        """Answer one request of the kernel."""
        request = os.read(self._device, LARGEST + 4096)
        _, operation, unique, node_number = struct.unpack_from("<IIQQ", request)
        body = request[40:]
        operate = self._answers.get(operation)
        if operation in {2, 42}:  # forget: expects no reply
            return
        try:
            reply = self._not_implemented() if operate is None else operate(self, node_number, body)
            code = 0
        except OSError as error:
            reply, code = b"", -int(error.errno or errno.EIO)
        with suppress(FileNotFoundError):  # the calling process was interrupted
            os.write(self._device, struct.pack("<IiQ", 16 + len(reply), code, unique) + reply)
        if operate in self._changes and code == 0:
            self.changed()

    @staticmethod
    def _not_implemented() -> bytes:
        raise OSError(errno.ENOSYS, "operation not implemented")

    # -- replies about a node

    def _attributes(self, node: Node) -> bytes:
        kind = stat.S_IFDIR if node.content is None else stat.S_IFREG
        size, now = len(node.content or b""), int(time.time())
        return struct.pack(
            "<6Q10I",
            self._number(node),
            size,
            0,
            now,
            now,
            now,
            0,
            0,
            0,
            kind | node.mode,
            1,
            0,
            0,
            0,
            4096,
            0,
        )

    def _number(self, node: Node) -> int:
        return self._numbers[id(node)]

    def _entry(self, node: Node) -> bytes:
        if id(node) not in self._numbers:
            self._numbers[id(node)] = number = len(self._nodes) + 1
            self._nodes[number] = node
        return struct.pack("<4Q2I", self._number(node), 0, 0, 0, 0, 0) + self._attributes(node)

    def _names(self, node_number: int) -> dict[str, Node]:
        return self._nodes[node_number].names

    # -- operations

    def _init(self, _at: int, _body: bytes) -> bytes:
        return struct.pack("<4IHHII HHI7I", 7, 31, 0, 0, 12, 9, LARGEST, 1, 0, 0, *(0,) * 8)

    def _look_up(self, node_number: int, body: bytes) -> bytes:
        node = self._names(node_number).get(_name(body))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return self._entry(node)

    def _get(self, node_number: int, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(self._nodes[node_number])

    def _set(self, node_number: int, body: bytes) -> bytes:
        node, (valid, _, _, size) = self._nodes[node_number], struct.unpack_from("<IIQQ", body)
        if valid & 1:
            node.mode = stat.S_IMODE(struct.unpack_from("<I", body, 68)[0])
        if valid & 8 and node.content is not None:
            del node.content[size:]
            node.content.extend(bytes(size - len(node.content)))
        return self._get(node_number, b"")

    def _make_folder(self, node_number: int, body: bytes) -> bytes:
        node = self._names(node_number)[_name(body[8:])] = Node(
            mode=stat.S_IMODE(struct.unpack_from("<I", body)[0])
        )
        return self._entry(node)

    def _create(self, node_number: int, body: bytes) -> bytes:
        mode = stat.S_IMODE(struct.unpack_from("<II", body)[1])
        node = self._names(node_number)[_name(body[16:])] = Node(bytearray(), mode=mode)
        return self._entry(node) + self._open(node_number, b"")

    def _remove(self, node_number: int, body: bytes) -> bytes:
        del self._names(node_number)[_name(body)]
        return b""

    def _remove_folder(self, node_number: int, body: bytes) -> bytes:
        if self._names(node_number)[_name(body)].names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        return self._remove(node_number, body)

    def _rename_with_flags(self, node_number: int, body: bytes) -> bytes:
        return self._rename(node_number, body[:8] + body[16:])

    def _rename(self, node_number: int, body: bytes) -> bytes:
        (target_folder,) = struct.unpack_from("<Q", body)
        old_name, new_name = body[8:].split(b"\0")[:2]
        replaced = self._names(target_folder).get(new_name.decode())
        if replaced is not None and replaced.names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        self._names(target_folder)[new_name.decode()] = self._names(node_number).pop(old_name.decode())
        return b""

    def _link(self, node_number: int, body: bytes) -> bytes:
        node = self._names(node_number)[_name(body[8:])] = self._nodes[struct.unpack_from("<Q", body)[0]]
        return self._entry(node)

    def _open(self, _at: int, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _read(self, node_number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes((self._nodes[node_number].content or b"")[offset : offset + size])

    def _write(self, node_number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        content = self._nodes[node_number].content
        assert content is not None
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + size] = body[40 : 40 + size]
        return struct.pack("<II", size, 0)

    def _read_folder(self, node_number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        entries = b""
        for index, (name, node) in list(enumerate(self._names(node_number).items(), start=1))[offset:]:
            kind = (stat.S_IFDIR if node.content is None else stat.S_IFREG) >> 12
            entry = struct.pack("<QQII", 1, index, len(name.encode()), kind) + name.encode()
            entry += bytes(-len(entry) % LONG)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries

    def _sync(self, node_number: int, _body: bytes) -> bytes:
        self._nodes[node_number].sync()
        return b""

    def _statistics(self, _at: int, _body: bytes) -> bytes:
        return struct.pack(
            "<5Q4I6I", 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096, 0, *(0,) * 6
        )

    def _nothing(self, _at: int, _body: bytes) -> bytes:
        return b""

    _changes = (
        _make_folder,
        _create,
        _remove,
        _remove_folder,
        _rename,
        _rename_with_flags,
        _link,
        _write,
        _set,
        _sync,
    )
    # by the numbers of linux/fuse.h
    _answers: dict[int, Callable[["Server", int, bytes], bytes]] = {  # noqa: RUF012
        1: _look_up, 3: _get, 4: _set, 9: _make_folder, 10: _remove, 11: _remove_folder, 12: _rename,
        13: _link, 14: _open,
        15: _read, 16: _write, 17: _statistics, 18: _nothing, 20: _sync,
        25: _nothing, 26: _init, 27: _open, 28: _read_folder,
        29: _nothing, 30: _sync, 34: _nothing, 35: _create, 45: _rename_with_flags,
    }  # fmt: skip


def _name(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode()


def mount(folder: Path) -> int:
    """Mount the file system at a folder; return the device for the kernel's requests."""
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"losing", bytes(folder), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    return device


def answer_all(device: int, server: Server, answer_line: Callable[[str], str]) -> None:
    """Answer the kernel's requests until the folder is unmounted.

    Answer each line of the test with the result of `answer_line`.
    """
    _say("mounted")
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            if not (line := sys.stdin.readline()):
                return
            _say(answer_line(line))
        elif device in ready:
            try:
                server.serve()
            except OSError:
                return  # the folder is unmounted


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    """Serve a folder; answer each line from stdin with all moments so far."""
    device = mount(folder)
    server = Server(device)
    answer_all(device, server, lambda _line: json.dumps(server.moments))


class Mounted:
    """A file system that another process serves, for a test."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        """Keep the folder and the serving process."""
        self.folder, self._process = folder, process

    def tell(self, line: str) -> str:
        """Send a line to the process; return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


class PowerLossDisk(Mounted):
    """The file system that loses unsynced data."""

    def moments(self) -> list[dict[Outcome, Any]]:
        """Return, after each change, what a power loss would leave in each outcome; the last is
        now.
        """
        moments: list[dict[Outcome, Any]] = json.loads(self.tell("?"))
        return moments


def restore(left: Any, folder: Path) -> None:
    """Write the remains of a power loss to a folder of an ordinary file system."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in left.items():
        if isinstance(each, dict):
            restore(each, folder / name)
        else:
            (folder / name).write_bytes(each.encode("latin-1"))


@contextmanager
def served(folder: Path, module: str) -> "Iterator[subprocess.Popen[str]]":
    """Mount the file system that a module serves at an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", module, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mounted\n"
        try:
            yield process
        finally:
            ctypes.CDLL(None).umount2(bytes(folder), DETACH)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)


@contextmanager
def power_loss_disk(folder: Path) -> Iterator[PowerLossDisk]:
    """Mount a file system that loses unsynced data at an empty folder."""
    with served(folder, "tests.power_loss") as process:
        yield PowerLossDisk(folder, process)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
