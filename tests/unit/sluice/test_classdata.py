"""Keeping class data: what is made for a time while tiers are warmed goes with its folder, and what comes after is made where it was."""

import tempfile
from pathlib import Path

from sluice.commands.class_data import _temporary_below


def test_temporary_class_data_is_made_below_a_folder_and_later_in_place(tmp_path: Path) -> None:
    before = Path(tempfile.mkdtemp(dir=None)).parent
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch, _temporary_below(scratch):
        assert Path(tempfile.mkdtemp()).parent == Path(scratch)
    after = Path(tempfile.mkdtemp())
    assert after.parent == before
    assert list(tmp_path.iterdir()) == []
