"""A file system that loses what was not synced, as a machine does with its power: a small FUSE server, in a process of its own.

It notes after each change what a loss of power at that moment would leave, in the two ways between which real file systems lie:

- `names`: a name is there at once, a content only once it was synced (a journal that has names alone: a file comes back empty).
- `nothing`: a name too is there only once its folder was synced.

It needs root and /dev/fuse, and speaks the kernel's protocol itself (linux/fuse.h): nothing has to be installed.
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

Way = Literal["names", "nothing"]
WAYS: tuple[Way, ...] = ("names", "nothing")
NEEDS = "the file system that loses what was not synced needs root and /dev/fuse"
AVAILABLE = os.geteuid() == 0 and os.access("/dev/fuse", os.W_OK)
LARGEST = 1 << 20
DETACH = 2
LONG = 8


@dataclass
class Node:
    """A file, or a folder."""

    content: bytearray | None = None
    """None: a folder."""
    names: dict[str, "Node"] = field(default_factory=dict)
    synced: bytes = b""
    synced_names: dict[str, "Node"] = field(default_factory=dict)
    mode: int = 0o755

    def left(self, way: Way) -> Any:
        """Return what a loss of power leaves of it: of a folder its names with what each has, of a file its content."""
        if self.content is not None:
            return self.synced.decode("latin-1")
        names = self.names if way == "names" else self.synced_names
        return {name: node.left(way) for name, node in names.items()}

    def sync(self) -> None:
        if self.content is None:
            self.synced_names = dict(self.names)
        else:
            self.synced = bytes(self.content)


class Server:
    """Answers the kernel."""

    def __init__(self, device: int) -> None:
        """Begin with an empty folder."""
        self._device = device
        self._nodes = {1: Node()}
        self._numbers = {id(self._nodes[1]): 1}
        self.moments: list[dict[Way, Any]] = []
        """What a loss of power would leave, after each change."""
        self.changed()

    def changed(self) -> None:
        """Note what is left after a change."""
        self.moments.append({way: self._nodes[1].left(way) for way in WAYS})

    def serve(self) -> None:
        """Answer one request."""
        request = os.read(self._device, LARGEST + 4096)
        _, operation, unique, at = struct.unpack_from("<IIQQ", request)
        body = request[40:]
        answer = self._answers.get(operation)
        if operation in {2, 42}:  # forget: nothing is to be said
            return
        try:
            said = self._refused() if answer is None else answer(self, at, body)
            code = 0
        except OSError as error:
            said, code = b"", -int(error.errno or errno.EIO)
        with suppress(FileNotFoundError):  # whoever asked has been interrupted
            os.write(self._device, struct.pack("<IiQ", 16 + len(said), code, unique) + said)
        if answer in self._changes and code == 0:
            self.changed()

    @staticmethod
    def _refused() -> bytes:
        raise OSError(errno.ENOSYS, "not here")

    # -- what is said of a node

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

    def _names(self, at: int) -> dict[str, Node]:
        return self._nodes[at].names

    # -- operations

    def _init(self, _at: int, _body: bytes) -> bytes:
        return struct.pack("<4IHHII HHI7I", 7, 31, 0, 0, 12, 9, LARGEST, 1, 0, 0, *(0,) * 8)

    def _look_up(self, at: int, body: bytes) -> bytes:
        node = self._names(at).get(_name(body))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return self._entry(node)

    def _get(self, at: int, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(self._nodes[at])

    def _set(self, at: int, body: bytes) -> bytes:
        node, (valid, _, _, size) = self._nodes[at], struct.unpack_from("<IIQQ", body)
        if valid & 1:
            node.mode = stat.S_IMODE(struct.unpack_from("<I", body, 68)[0])
        if valid & 8 and node.content is not None:
            del node.content[size:]
            node.content.extend(bytes(size - len(node.content)))
        return self._get(at, b"")

    def _make_folder(self, at: int, body: bytes) -> bytes:
        node = self._names(at)[_name(body[8:])] = Node(mode=stat.S_IMODE(struct.unpack_from("<I", body)[0]))
        return self._entry(node)

    def _create(self, at: int, body: bytes) -> bytes:
        mode = stat.S_IMODE(struct.unpack_from("<II", body)[1])
        node = self._names(at)[_name(body[16:])] = Node(bytearray(), mode=mode)
        return self._entry(node) + self._open(at, b"")

    def _remove(self, at: int, body: bytes) -> bytes:
        del self._names(at)[_name(body)]
        return b""

    def _remove_folder(self, at: int, body: bytes) -> bytes:
        if self._names(at)[_name(body)].names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        return self._remove(at, body)

    def _rename_with_flags(self, at: int, body: bytes) -> bytes:
        return self._rename(at, body[:8] + body[16:])

    def _rename(self, at: int, body: bytes) -> bytes:
        (to,) = struct.unpack_from("<Q", body)
        before, after = body[8:].split(b"\0")[:2]
        old = self._names(to).get(after.decode())
        if old is not None and old.names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        self._names(to)[after.decode()] = self._names(at).pop(before.decode())
        return b""

    def _link(self, at: int, body: bytes) -> bytes:
        node = self._names(at)[_name(body[8:])] = self._nodes[struct.unpack_from("<Q", body)[0]]
        return self._entry(node)

    def _open(self, _at: int, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _read(self, at: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes((self._nodes[at].content or b"")[offset : offset + size])

    def _write(self, at: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        content = self._nodes[at].content
        assert content is not None
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + size] = body[40 : 40 + size]
        return struct.pack("<II", size, 0)

    def _read_folder(self, at: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        said = b""
        for place, (name, node) in list(enumerate(self._names(at).items(), start=1))[offset:]:
            kind = (stat.S_IFDIR if node.content is None else stat.S_IFREG) >> 12
            each = struct.pack("<QQII", 1, place, len(name.encode()), kind) + name.encode()
            each += bytes(-len(each) % LONG)
            if len(said) + len(each) > size:
                break
            said += each
        return said

    def _sync(self, at: int, _body: bytes) -> bytes:
        self._nodes[at].sync()
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
    _answers: dict[int, Callable[["Server", int, bytes], bytes]] = {  # noqa: RUF012 - by the numbers of linux/fuse.h
        1: _look_up, 3: _get, 4: _set, 9: _make_folder, 10: _remove, 11: _remove_folder, 12: _rename, 13: _link, 14: _open,
        15: _read, 16: _write, 17: _statistics, 18: _nothing, 20: _sync,
        25: _nothing, 26: _init, 27: _open, 28: _read_folder,
        29: _nothing, 30: _sync, 34: _nothing, 35: _create, 45: _rename_with_flags,
    }  # fmt: skip


def _name(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode()


def mount(folder: Path) -> int:
    """Mount at a folder; return the device on which the kernel asks."""
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"losing", bytes(folder), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    return device


def answer_all(device: int, server: Server, told: Callable[[str], str]) -> None:
    """Answer the kernel until nothing is mounted any more, and each line of the test with what `told` returns for it."""
    _say("mounted")
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            if not (line := sys.stdin.readline()):
                return
            _say(told(line))
        elif device in ready:
            try:
                server.serve()
            except OSError:
                return  # it is mounted no more


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main(folder: Path) -> None:
    """Serve a folder; for each line that comes say all moments so far."""
    device = mount(folder)
    server = Server(device)
    answer_all(device, server, lambda _line: json.dumps(server.moments))


class Mounted:
    """A file system that a process of its own serves, as a test has it."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        """Know where it is mounted, and who serves it."""
        self.folder, self._process = folder, process

    def tell(self, line: str) -> str:
        """Tell the process something, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


class Losing(Mounted):
    """The file system that loses what was not synced."""

    def moments(self) -> list[dict[Way, Any]]:
        """Return what a loss of power after each change would have left, in each way; the last one is now."""
        moments: list[dict[Way, Any]] = json.loads(self.tell("?"))
        return moments


def restore(left: Any, folder: Path) -> None:
    """Write what a loss of power has left into a folder of a file system that loses nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in left.items():
        if isinstance(each, dict):
            restore(each, folder / name)
        else:
            (folder / name).write_bytes(each.encode("latin-1"))


@contextmanager
def served(folder: Path, module: str) -> "Iterator[subprocess.Popen[str]]":
    """Mount what a module serves at an empty folder."""
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
def losing(folder: Path) -> Iterator[Losing]:
    """Mount one at an empty folder."""
    with served(folder, "tests.losing") as process:
        yield Losing(folder, process)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
