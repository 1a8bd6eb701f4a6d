"""Bytes of a file in memory."""


class Content:
    """Bytes of a file, without the zeros at the end that it was grown by.

    A broker makes an index 10 MB long before it has an entry. Written, copied by each sync, and
    compared, these zeros took more time than the rest of many tests.
    """

    __slots__ = ("_size", "_written")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self._written = bytearray(data)
        self._size = len(data)

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self.read(0, self._size)

    @property
    def written_size(self) -> int:
        """Size without the zeros at the end that it was grown by."""
        return len(self._written)

    def copy(self) -> "Content":
        """The same bytes, to be changed by themselves."""
        after = Content(self._written)
        after._size = self._size
        return after

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes."""
        end = min(position + size, self._size)
        found = bytes(self._written[position:end])
        return found + bytes(max(end - position - len(found), 0))

    def write(self, position: int, data: bytes) -> None:
        """Put `data` at `position`, after zeros where the file ended before."""
        self._written += bytes(max(position - len(self._written), 0))
        self._written[position : position + len(data)] = data
        self._size = max(self._size, position + len(data))

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        del self._written[size:]
        self._size = size

    def state(self) -> object:
        """A hashable value; two are equal if the bytes are."""
        return bytes(self._written.rstrip(b"\0")), self._size
