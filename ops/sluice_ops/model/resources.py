"""Resources in whole quanta: what one worker holds, and what a host has to give."""

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
"""More than any machine has: who says more is mistaken, and what is reckoned from it would have no end."""

Mebibytes = Annotated[int, BeforeValidator(_mebibytes), Field(gt=0, le=MOST_MEBIBYTES)]
CoreCount = Annotated[float, Field(gt=0, le=MOST_CORES)]


BESIDE_HEAP = 450
"""MiB kept for the Worker daemon (or the driver's Python), code cache, thread stacks and native memory."""


class Frozen(BaseModel):
    """A value: never changed after it was made, and unknown keys are refused.

    What a newer version has added to one that comes from the channel, or from an agent's disk, is kept (`extra="allow"` there), and
    written again with it (decision record 0031). No number is infinite: JSON has no word for that, but `1e999` is read as it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _with_unknown(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {**written, **self.model_extra} if self.model_extra else written


F = TypeVar("F", bound=Frozen)


def known(value: F) -> F:
    """Return a value without what a newer version has added to it, or to what it holds."""
    return type(value).model_validate_json(value.model_dump_json(), extra="ignore")


class Quantum(Frozen):
    """The fixed resources of one worker, all of them together: a tier has k of these, never a part."""

    cpu: CoreCount = Field(default=1.0, ge=0.001)
    """Cores that the worker is entitled to when the host is busy (a weight, not a ceiling). Unit: cores."""
    memory: Mebibytes = 1024
    """Everything in the slot: the Worker daemon, the executor's heap and what lies beside it. Unit: MiB, or `700m`, `2g`."""
    threads: int = Field(default=4, ge=1)
    """Tasks that run at once. A realtime tier holds one for each partition that it reads."""
    io: int = Field(default=100, ge=1, le=1000)
    """Relative weight of disk access."""
    network: int = Field(default=100, ge=1, le=1000)
    """Relative weight of sending on the host's link, where the site file divides it (`hosts[].network`)."""
    disk: Mebibytes | None = None
    """What the worker's files may take of its host's disk: one that has more is ended, and its files with it. Unit: MiB, or `700m`, `2g`.
    Default: no limit."""

    @property
    def heap(self) -> int:
        """MiB of Java heap for the one JVM that does the work; the rest is for what lies beside it."""
        return max(300, self.memory - BESIDE_HEAP)


def _interface(said: str) -> str:
    if said == "lo" or not re.fullmatch(r"[^\s/:]{1,15}", said):
        message = f"{said!r} is no interface that units send on: write its name as `ip -br link` shows it, such as eth0"
        raise ValueError(message)
    return said


class Link(Frozen):
    """What a host sends on, divided among its units by `Quantum.network`."""

    interface: Annotated[str, AfterValidator(_interface)]
    """Its name, such as eth0."""
    mbit: int = Field(ge=10, le=400_000)
    """What it carries. Where that is less than is said here, the queue is elsewhere and nothing is divided. Unit: 10⁶ bits a second."""


Cores = Literal["shared", "own"]
"""`shared`: the units of a host run on all its processors, by the weight of `Quantum.cpu`. `own`: a unit whose `cpu` is a whole number
has as many processors, on which no other unit runs, and the others share what is left."""


class Capacity(Frozen):
    """What a host gives to slots and drivers."""

    cpu: CoreCount
    memory: Mebibytes

    def less(self, quantum: Quantum) -> tuple[float, int]:
        """Return what would be left of cpu and memory after one more quantum; negative where it does not fit."""
        return self.cpu - quantum.cpu, self.memory - quantum.memory
