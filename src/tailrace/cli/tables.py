"""Tables as lines of text, the same on a terminal and in a pipe."""

from collections.abc import Collection, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int]) -> Iterator[str]:
    """Lines of a table; the columns with an index in `right` are of numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
