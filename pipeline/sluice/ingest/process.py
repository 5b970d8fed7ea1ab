"""What the processes `files` and `http` have in common: options, signals and exit codes."""

import argparse
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException

from sluice.ingest.source import SourceError, TakenOverError
from sluice.kafka.reader import StreamError
from sluice_ops.process.logs import configure_logs
from sluice_ops.process.watchdog import LoopLimits, Watchdog
from sluice_ops.site import endpoints

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?")
LARGEST_PORT = 65_535
TAKEN_OVER_EXIT = 4
"""The exit code if another process owns the source. The unit file then starts no other process."""
HUNG_EXIT = 5
"""The exit code if a loop of the source hung. The unit file then starts another process."""
LIMITS = LoopLimits(busy=60.0, idle=10.0)


def source_name(text: str) -> str:
    """Return a valid name of a source."""
    if not NAME.fullmatch(text):
        message = f"{text!r} is no name of a source: use up to 64 of a-z, 0-9, - and ., such as app-h1"
        raise argparse.ArgumentTypeError(message)
    return text


def metrics_address(text: str) -> str:
    """Return a valid address for metrics."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= LARGEST_PORT:
        message = f"{text!r} is no address: give HOST:PORT, such as 127.0.0.1:9464"
        raise argparse.ArgumentTypeError(message)
    return text


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every source."""
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    options.add_argument("--stream", required=True, help="the stream from outside that gets the records")
    options.add_argument(
        "--name", type=source_name, required=True, help="the source's name: one process at a time has it"
    )
    options.add_argument(
        "--metrics", type=metrics_address, metavar="HOST:PORT", help="serve metrics for Prometheus there"
    )
    options.add_argument("--key", help="the field of a JSON record whose value is the record's key")
    return options


def watchdog(loop: str, give_up: Callable[[], None]) -> Watchdog:
    """Return what ends this process if a loop of it hangs. A wait for Kafka is no hang."""
    return Watchdog(loop, LIMITS, ("sluice.ingest.source",), give_up=give_up, exit_code=HUNG_EXIT)


def tell_systemd() -> None:
    """Tell systemd again and again that this process runs, if its unit has WatchdogSec."""
    address, microseconds = os.environ.get("NOTIFY_SOCKET"), os.environ.get("WATCHDOG_USEC")
    if not address or not microseconds:
        return
    place, pause = address.replace("@", "\0", 1), int(microseconds) / 4_000_000

    def tell() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            while True:
                with suppress(OSError):  # systemd is restarted just now
                    channel.sendto(b"WATCHDOG=1", place)
                time.sleep(pause)

    threading.Thread(target=tell, name="systemd", daemon=True).start()


def run(chosen: argparse.Namespace, serve: Callable[[argparse.Namespace, threading.Event], None]) -> int:
    """Run `serve` until a signal sets the event; return the exit code."""
    configure_logs()
    tell_systemd()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        serve(chosen, stop)
    except endpoints.EndpointsError as error:
        return _ended(error, 2)
    except (StreamError, FileNotFoundError) as error:
        return _ended(error, 3)
    except TakenOverError as error:
        return _ended(error, TAKEN_OVER_EXIT)
    except SourceError as error:
        return 0 if stop.is_set() else _ended(error, 1)
    except KafkaException as error:
        return _ended(error.args[0].str(), 1)
    return 0


def _ended(error: object, code: int) -> int:
    sys.stderr.write(f"{error}\n")
    return code
