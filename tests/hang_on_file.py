"""`python -m tests.hang_on_file FILE MODULE …`: run a module whose working loop hangs after FILE
exists.

A controller hangs in its decisions, an agent in its look at its units. Their other threads, such as
kazoo's, continue.
"""

import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.controller import leader


def hanging(act: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Return a function that calls `act`, and hangs for ever after the file exists."""

    def call_or_hang(*words: Any, **more: Any) -> Any:
        if file.exists():
            threading.Event().wait()
        return act(*words, **more)

    return call_or_hang


def main() -> None:
    """Run the module as its own program."""
    file = Path(sys.argv[1])
    leader.decide = hanging(leader.decide, file)
    # this process exists only for the patch
    ProcessControl.find = hanging(ProcessControl.find, file)  # type: ignore[method-assign]
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
