"""`python -m tests.frozen PATH MODULE …`: run a module that stands still (SIGSTOP), once, as it is about to write that node.

When it is woken it waits for another session before it writes: what it then sends, nothing but its guards can refuse.
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
    """Run the module as if it had been started by itself."""
    left = {sys.argv[1]}

    def multi(channel: Channel, writes: Sequence[Write | Guard]) -> None:
        if any(write.path in left for write in writes if isinstance(write, Write)):
            left.clear()
            before = channel.session
            os.kill(os.getpid(), signal.SIGSTOP)
            while not channel.connected or channel.session in {before, None}:
                time.sleep(0.05)
        MULTI(channel, writes)

    Channel.multi = multi  # type: ignore[method-assign]  # this process is here for it
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
