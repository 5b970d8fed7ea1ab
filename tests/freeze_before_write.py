"""`python -m tests.freeze_before_write PATH MODULE …`: run a module, and freeze it before it writes
PATH.

The process stops itself (SIGSTOP) once. After it is continued, it waits for a new session and then
writes, so that only the write's guards can refuse the write.
"""

import os
import runpy
import signal
import sys
import time
from collections.abc import Sequence

from sluice_ops.channel import Channel, Guard, Write

MULTI = Channel.multi


def main() -> None:
    """Run the module as its own program."""
    paths_to_freeze_at = {sys.argv[1]}

    def multi(channel: Channel, writes: Sequence[Write | Guard]) -> None:
        if any(write.path in paths_to_freeze_at for write in writes if isinstance(write, Write)):
            paths_to_freeze_at.clear()
            old_session = channel.session
            os.kill(os.getpid(), signal.SIGSTOP)
            while not channel.connected or channel.session in {old_session, None}:
                time.sleep(0.05)
        MULTI(channel, writes)

    Channel.multi = multi  # type: ignore[method-assign]  # this process exists for the patch
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
