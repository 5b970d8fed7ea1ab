"""Sinks of files: what the files of JSON lines hold, and where each kind is known."""

import gzip
import json
from io import BytesIO

import pytest

from sluice.api.declarations import DeclarationError
from sluice.commands import tables
from sluice.sinks.archive import _write_json
from sluice.sinks.table import FileTable, JsonFiles
from sluice_ops.local.first_record import TABLE_SINKS

LINES = [(json.dumps({"text": text}, ensure_ascii=False),) for text in ("ü€𝄞", "a\u2028b\x85c", 'say "no"')]


def test_two_writers_of_the_same_rows_put_the_same_bytes():
    files = BytesIO(), BytesIO()
    assert [_write_json(LINES, file) for file in files] == [len(LINES)] * 2
    assert files[0].getvalue() == files[1].getvalue()
    assert gzip.decompress(files[0].getvalue()).decode() == "".join(f"{line}\n" for (line,) in LINES)


def test_drivers_may_delete_rows_that_a_file_has():
    kinds = {kind.__name__ for kind in FileTable.__subclasses__()}
    assert kinds == tables.FILES
    assert kinds <= TABLE_SINKS


@pytest.mark.parametrize("folder", ["../lines", "a/b", "", "s3a://bucket", "http://host/lines"])
def test_a_folder_elsewhere_is_refused(folder):
    with pytest.raises(DeclarationError, match="name one folder below `archive/`"):
        JsonFiles("lines", {"id": "text"}, folder=folder)
