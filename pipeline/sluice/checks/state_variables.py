"""The variables of a tier's own state, as its `StatefulProcessor` declares them in `init`.

Spark's plan does not show them: a checkpoint would be refused only by a driver. A transform is run
while `noted` notes each processor, and a copy of the processor declares its variables to a
`Recorder`. If `init` does more than that and fails here, nothing is known of the tier's variables.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

from sluice_ops.model.release import VARIABLE

Steps = list[tuple[Any, str]]
"""The processor and the time mode of each step, in the order of the calls."""


class Recorder:
    """Notes the variables that a processor declares; stands for Spark's handle."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.variables: list[str] = []

    def getValueState(  # noqa: N802 — as Spark's handle
        self,
        stateName: str,  # noqa: N803
        schema: StructType | str,
        ttlDurationMs: int | None = None,  # noqa: N803
    ) -> "Inert":
        """Note a value."""
        return self._note(f"value {stateName} {_text(schema)}", ttlDurationMs)

    def getListState(  # noqa: N802
        self,
        stateName: str,  # noqa: N803
        schema: StructType | str,
        ttlDurationMs: int | None = None,  # noqa: N803
    ) -> "Inert":
        """Note a list."""
        return self._note(f"list {stateName} {_text(schema)}", ttlDurationMs)

    def getMapState(  # noqa: N802
        self,
        stateName: str,  # noqa: N803
        userKeySchema: StructType | str,  # noqa: N803
        valueSchema: StructType | str,  # noqa: N803
        ttlDurationMs: int | None = None,  # noqa: N803
    ) -> "Inert":
        """Note a map."""
        return self._note(f"map {stateName} {_text(userKeySchema)} to {_text(valueSchema)}", ttlDurationMs)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a function that does nothing, for timers."""
        return lambda *_, **__: None

    def _note(self, variable: str, ttl: int | None) -> "Inert":
        # any duration fits the checkpoint of another; without one, Spark stores values differently
        self.variables.append(variable if not ttl else f"{variable} with a time to live")
        return Inert()


class Inert:
    """Stands for a variable of the state, which has nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a function that does nothing."""
        return lambda *_, **__: None


@contextmanager
def noted() -> Iterator[Steps]:
    """Note each `transformWithState` until the end of the block."""
    steps: Steps = []
    original = PandasGroupedOpsMixin.transformWithState

    def transform_with_state(
        grouped: Any,
        statefulProcessor: Any,  # noqa: N803
        outputStructType: Any,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeMode: str,  # noqa: N803
        *more: Any,
        **others: Any,
    ) -> Any:
        steps.append((statefulProcessor, timeMode))
        return original(grouped, statefulProcessor, outputStructType, outputMode, timeMode, *more, **others)

    PandasGroupedOpsMixin.transformWithState = transform_with_state
    try:
        yield steps
    finally:
        PandasGroupedOpsMixin.transformWithState = original


def variables(steps: Steps) -> tuple[str, ...]:
    """Return a description of each variable of the steps; nothing if one of them is unknown."""
    descriptions: list[str] = []
    for number, (processor, mode) in enumerate(steps, start=1):
        recorder = Recorder()
        try:
            copy.copy(processor).init(recorder)
        except Exception:  # noqa: BLE001 — the author's code, which expects Spark
            return ()
        step = f"{VARIABLE}of step {number}: "
        descriptions += [f"{step}time mode {mode}", *(f"{step}{variable}" for variable in recorder.variables)]
    return tuple(descriptions)


def _text(schema: StructType | str) -> str:
    parsed: DataType = schema if isinstance(schema, DataType) else _parse_datatype_string(schema)
    return str(parsed.simpleString())
