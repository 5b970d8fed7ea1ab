"""Class data: temporary files of the warm-up stay in one folder, and `--help` works without a
platform.
"""

import tempfile
from pathlib import Path

import pytest

from sluice.commands import class_data
from sluice.commands.class_data import _temporary_below


def test_temporary_class_data_is_made_below_a_folder_and_later_in_place(tmp_path: Path) -> None:
    before = Path(tempfile.mkdtemp(dir=None)).parent
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch, _temporary_below(scratch):
        assert Path(tempfile.mkdtemp()).parent == Path(scratch)
    after = Path(tempfile.mkdtemp())
    assert after.parent == before
    assert list(tmp_path.iterdir()) == []


def test_without_an_endpoints_file_help_works_and_a_run_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(tmp_path / "endpoints.json"))
    with pytest.raises(SystemExit) as ended:
        class_data.main(["--help"])
    assert ended.value.code == 0
    assert "usage: python -m sluice.commands.class_data" in capsys.readouterr().out
    assert class_data.main([]) == 1
    assert f"{tmp_path}/endpoints.json does not exist" in capsys.readouterr().err
