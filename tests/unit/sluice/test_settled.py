"""Up to where all is out after a batch of a tier that writes streams: told by its checkpoint, and known to the next run."""

from pathlib import Path

from sluice.driver.state.offset_log import ends


def test_where_a_batch_ends(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(
        'v1\n{"batchWatermarkMs":0}\n{"raw":{"0":7,"1":9}}\n{"late":{"0":1}}'
    )
    assert ends(tmp_path, 3) == {"raw/0": 7, "raw/1": 9, "late/0": 1}
