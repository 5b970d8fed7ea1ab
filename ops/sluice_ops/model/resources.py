"""Resources: the quantum of one worker, and the capacity of a host."""

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

_SIZE = re.compile(r"^(\d+)\s*([mg])i?b?$", re.IGNORECASE)


def _mebibytes(value: object) -> object:
    if isinstance(value, bool):
        message = f"{value!r} is not a size: write it like 700m or 2g"
        raise ValueError(message)  # noqa: TRY004 - pydantic says a ValueError's words
    if isinstance(value, str):
        match = _SIZE.match(value.strip())
        if match is None:
            message = f"{value!r} is not a size: write it like 700m or 2g"
            raise ValueError(message)
        return int(match[1]) * (1024 if match[2].lower() == "g" else 1)
    return value


MOST_CORES, MOST_MEBIBYTES = 100_000.0, 2**30
"""The largest accepted values. No machine has more, and larger values would make loops endless."""

Mebibytes = Annotated[int, BeforeValidator(_mebibytes), Field(gt=0, le=MOST_MEBIBYTES)]
CoreCount = Annotated[float, Field(gt=0, le=MOST_CORES)]


BESIDE_HEAP = 450
"""MiB for the Worker daemon (or the driver's Python), code cache, thread stacks and native
memory.
"""


class Frozen(BaseModel):
    """An immutable value. Unknown keys are refused.

    Values from the channel or from an agent's disk are read with `extra="allow"`: keys of a newer
    version are kept and written again (decision 31). Infinite numbers are refused, because
    JSON has none, but `1e999` would be read as one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _with_unknown(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {**written, **self.model_extra} if self.model_extra else written


F = TypeVar("F", bound=Frozen)


def known(value: F) -> F:
    """Return a value without the keys of a newer version, at any depth."""
    return type(value).model_validate_json(value.model_dump_json(), extra="ignore")


class Quantum(Frozen):
    """The fixed resources of one worker. A tier has a whole number of quanta, never a part."""

    cpu: CoreCount = Field(default=1.0, ge=0.001)
    """The cores that the worker gets on a busy host: a weight, not a ceiling. Unit: cores."""
    memory: Mebibytes = 1024
    """The memory of the whole slot: Worker daemon, executor's heap, and memory outside the heap.

    Unit: MiB, or `700m`, `2g`.
    """
    threads: int = Field(default=4, ge=1)
    """Tasks that run at once. A realtime tier needs one for each partition that it reads."""
    io: int = Field(default=100, ge=1, le=1000)
    """The relative weight of disk access."""
    network: int = Field(default=100, ge=1, le=1000)
    """The relative weight of sending, if the site file divides the host's link
    (`hosts[].network`).
    """
    disk: Mebibytes | None = None
    """The most disk that the worker's files may use.

    A worker that uses more is ended, and its files are removed. Unit: MiB, or `700m`, `2g`.
    Default: no limit.
    """

    @property
    def heap(self) -> int:
        """The Java heap of the JVM that runs the tasks. Unit: MiB."""
        return max(300, self.memory - BESIDE_HEAP)


def _interface(name: str) -> str:
    if name == "lo" or not re.fullmatch(r"[^\s/:]{1,15}", name):
        message = (
            f"{name!r} is no interface on which units send: "
            "write the name that `ip -br link` shows, such as eth0"
        )
        raise ValueError(message)
    return name


class Link(Frozen):
    """The network link of a host, which its units share by `Quantum.network`."""

    interface: Annotated[str, AfterValidator(_interface)]
    """The interface's name, such as eth0."""
    mbit: int = Field(ge=10, le=400_000)
    """The rate of the link. Unit: 10⁶ bits a second.

    If the link is slower than this, packets queue elsewhere and the shares have no effect.
    """


Cores = Literal["shared", "own"]
"""`shared`: the units of a host run on all its processors, by the weight of `Quantum.cpu`.

`own`: a unit whose `cpu` is a whole number has so many processors for itself. The other units share
the other processors.
"""


class Capacity(Frozen):
    """The resources of a host for slots and drivers."""

    cpu: CoreCount
    """Unit: cores."""
    memory: Mebibytes
    """Unit: MiB, or `700m`, `2g`."""

    def less(self, quantum: Quantum) -> tuple[float, int]:
        """Return cores and MiB that are left after one quantum; negative if it does not fit."""
        return self.cpu - quantum.cpu, self.memory - quantum.memory
