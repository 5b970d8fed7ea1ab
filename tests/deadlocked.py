"""`python -m tests.deadlocked FILE MODULE …`: run a module whose working loop hangs for ever once the file is there.

A controller hangs as it decides, an agent as it looks at its units; their other threads, kazoo's among them, go on.
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
    """Return what does the same, until the file is there."""

    def either(*words: Any, **more: Any) -> Any:
        if file.exists():
            threading.Event().wait()
        return act(*words, **more)

    return either


def main() -> None:
    """Run the module as if it had been started by itself."""
    file = Path(sys.argv[1])
    leader.decide = hanging(leader.decide, file)
    ProcessControl.find = hanging(ProcessControl.find, file)  # type: ignore[method-assign]  # this process is here for it
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
