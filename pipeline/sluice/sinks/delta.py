"""The commits of one sink to a Delta table: one for each round of the archive.

A commit names the round's last batch, as the newest of this sink (an application transaction of
Delta's protocol). A writer that comes too late reads that the table has the batches already, or its
commit conflicts with the other writer's. So a batch is in the table once (decision 106).
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sluice.s3 import bucket_and_prefix, client
from sluice.sinks.table import HOUR
from sluice_ops.model.wording import page
from sluice_ops.site.files import make_folders, sync
from sluice_ops.site.site_file import S3Config

CHECKPOINT_EVERY = "10"
"""A table gets a checkpoint after so many commits. Who opens it reads later ones one by one."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""The library's messages have colours and several lines."""


class DeltaAwayError(OSError):
    """The table takes no commit; the message names the cause."""


class DeltaCommits:
    """Writes the rows of one sink into its Delta table."""

    def __init__(self, sink: str, folder: str, home: Path, s3: S3Config, seconds: float) -> None:
        """Keep the address; `folder` is below the home's archive, or in S3.

        `seconds` is the longest wait for an answer of S3.
        """
        self._application = f"sluice-{sink}"
        self._folder = None if folder.startswith("s3a://") else home / "archive" / folder
        self._address = (
            "s3://{}/{}".format(*bucket_and_prefix(folder)) if self._folder is None else str(self._folder)
        )
        self._s3, self._seconds = s3, seconds

    def append(self, hours: dict[str, pa.Table], first: int, last: int) -> int:
        """Commit the rows of the batches `first` to `last`, unless the table has them; return their
        number.

        DeltaAwayError if the table has another batch from `first` on: the ledger went back.
        No call here holds Python's lock while it waits for S3, as some of `deltalake` do.
        """
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake  # noqa: PLC0415
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415

        rows = pa.concat_tables(_with_hour(rows, hour) for hour, rows in hours.items())
        if self._folder is not None:
            make_folders(self._folder)
        try:
            options = self._options()
            try:
                table = DeltaTable(self._address, storage_options=options)
            except TableNotFoundError:
                table = DeltaTable.create(
                    self._address,
                    rows.schema,
                    partition_by=[HOUR],
                    configuration={"delta.checkpointInterval": CHECKPOINT_EVERY},
                    storage_options=options,
                )
            newest = table.transaction_version(self._application)
            _refuse_batches_again(newest, first, last)
            if newest != last:
                # with the table's address instead, a commit since this look would be no conflict
                write_deltalake(
                    table,
                    rows,
                    mode="append",
                    schema_mode="merge",
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(self._application, last)]
                    ),
                )
        except (DeltaError, OSError) as error:
            reason = " ".join(COLOURS.sub("", str(error)).split())
            message = f"the Delta table {self._address} takes no commit: {reason}"
            raise DeltaAwayError(message) from error
        if self._folder is not None:
            _sync(self._folder, {"appId": self._application, "version": last})
        return int(rows.num_rows)

    def _options(self) -> dict[str, str]:
        """Return what the client of S3 needs; nothing for a folder."""
        if self._folder is not None:
            return {}
        import boto3  # noqa: PLC0415 — takes half a second, only for S3

        credentials = boto3.Session().get_credentials()
        if credentials is None:
            message = "there are no credentials for S3: see the page Checkpoints in S3"
            raise DeltaAwayError(message)
        keys, service = credentials.get_frozen_credentials(), client(self._s3, self._seconds).meta
        options = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
            "AWS_REGION": service.region_name,
            "AWS_ENDPOINT_URL": service.endpoint_url,
            "AWS_ALLOW_HTTP": str(service.endpoint_url.startswith("http://")).lower(),
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "timeout": f"{self._seconds:.0f}s",
            "connect_timeout": f"{self._seconds:.0f}s",
            "max_retries": "3",
            "retry_timeout": f"{self._seconds:.0f}s",
        }
        return {name: value for name, value in options.items() if value}


def _refuse_batches_again(newest: int | None, first: int, last: int) -> None:
    """Raise DeltaAwayError if a table with the batch `newest` may have a part of a round.

    After a crash, it has the whole round, for the round's extent is stored before the commit.
    """
    if newest is not None and newest >= first and newest != last:
        message = (
            f"it has batch {newest} of this sink, and the next batches are {first} to {last}: was PostgreSQL "
            f"restored, or the ledger emptied? To continue, see {page('Pipelines', 'Delta tables')}"
        )
        raise DeltaAwayError(message)


def _with_hour(rows: pa.Table, hour: str) -> pa.Table:
    return rows.append_column(HOUR, pa.array([hour] * rows.num_rows, pa.string()))


def _sync(folder: Path, transaction: dict[str, Any]) -> None:
    """Flush the commit of a transaction, its files and their folders to the disk."""
    logs = folder / "_delta_log"
    for log in sorted(logs.glob("*.json"), reverse=True):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        if any(transaction.items() <= action.get("txn", {}).items() for action in actions):
            files = [folder / unquote(action["add"]["path"]) for action in actions if "add" in action]
            more = [path for path in logs.iterdir() if path.name.startswith((log.stem, "_last_checkpoint"))]
            for path in (*files, *more, *{file.parent for file in files}, logs, folder):
                sync(path)
            return
