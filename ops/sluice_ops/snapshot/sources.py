"""The figures of sources, which change all the time: no watch follows them."""

from sluice_ops.model import paths
from sluice_ops.model.source import SourceFigures
from sluice_ops.snapshot.view import Reader, View


def source_figures(reader: Reader, view: View) -> dict[str, SourceFigures]:
    """Return what the running sources have reported last; `reader` is no mirror."""
    names = [name for name, source in view.sources.items() if source.live]
    reads = reader.read_many([paths.source_live(name) for name in names], SourceFigures)
    return {name: read.value for name, read in zip(names, reads, strict=True) if read is not None}
