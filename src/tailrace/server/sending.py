"""Answers on their way out: memory as it is, slices of files when the kernel has room for them.

    output    head | small slice | head | large slice ....................
    one send  head | copy        | head
    next ones                           | straight from the page cache, 1 MiB at a time

A slice stays a slice until then, so that a slow reader of 50 MB costs a few objects. Large slices
leave by `sendfile`, once the page cache is known to have them. Small ones, and all where the system
does not tell what is cached, are copied through one buffer that every connection of the loop uses:
the kernel has copied it in turn when `send` returns.

What only a device has is read on another thread. Nothing here waits.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tailrace.protocol.fields import Buffer, Records
from tailrace.runtime.files import FileSlice, without_waiting
from tailrace.runtime.network import IOV_MAX, ServerSocket

SCRATCH_BYTES: Final = 256 * 1024
"""Most bytes of files that are copied for one send, and read from a device at once."""

DIRECT_BYTES_MIN: Final = 32 * 1024
"""From this size on a slice leaves without a copy: a call more costs less than the bytes."""

DIRECT_BYTES_MAX: Final = 1024 * 1024
"""Most bytes that leave in one call: a fraction of a millisecond."""

_IN_MEMORY: Final = (bytes, bytearray, memoryview)

DeviceRead = Callable[[FileSlice, int], Awaitable[bytes]]
"""Reads the first so many bytes of a slice where that may take long: not on the loop's thread."""


class StoredBytesError(Exception):
    """Bytes of an answer could not be read, of which the first part has been sent."""

    def __init__(self, stored: FileSlice, reason: OSError) -> None:
        self.stored = stored
        self.reason = reason
        super().__init__(f"{stored.path}: {reason}")


class NotCachedError(Exception):
    """An output begins with bytes that only a device has; see `Sending.from_device`."""


class Sending:
    """What the connections of one loop share."""

    def __init__(self, read_from_device: DeviceRead) -> None:
        self._read_from_device = read_from_device
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def send(self, socket: ServerSocket, output: list[Records]) -> tuple[list[Records], bool]:
        """What is left of a non-empty output, and whether the kernel has room for more of it.

        Raises:
            NotCachedError: nothing could be sent before a device is asked.
            StoredBytesError: bytes of a file cannot be read.
            ConnectionError: the connection is broken.
        """
        first = output[0]
        if not isinstance(first, _IN_MEMORY) and _leaves_directly(first):
            wanted = min(len(first), DIRECT_BYTES_MAX)
            try:
                sent = socket.send_stored(first, wanted)
            except ConnectionError:
                raise
            except OSError as error:
                raise StoredBytesError(first, error) from error
        else:
            buffers = self._buffers_for(output)
            wanted = sum(map(len, buffers))
            has_more = len(buffers) < len(output)
            sent = socket.send_more(buffers) if has_more else socket.send(buffers)
        return unsent(output, sent or 0), sent == wanted

    async def from_device(self, output: list[Records]) -> list[Records]:
        """The output with the first bytes of the slice that it begins with in memory.

        Raises:
            StoredBytesError: they cannot be read.
        """
        stored = output[0]
        assert not isinstance(stored, _IN_MEMORY)
        try:
            data = await self._read_from_device(stored, SCRATCH_BYTES)
        except OSError as error:
            raise StoredBytesError(stored, error) from error
        return [data, *unsent(output, len(data))]

    def _buffers_for(self, output: Sequence[Records]) -> list[Buffer]:
        """The front of an output as bytes to send now, up to what leaves directly."""
        ready: list[Buffer] = []
        room = self._scratch
        for each in output[:IOV_MAX]:
            if isinstance(each, _IN_MEMORY):
                ready.append(each)
                continue
            if ready and _leaves_directly(each):
                break
            try:
                with without_waiting:
                    size = each.read_into(room)
            except BlockingIOError:
                break
            except OSError as error:
                raise StoredBytesError(each, error) from error
            ready.append(room[:size])
            room = room[size:]
            if size < len(each) or not room:
                break
        if not ready:
            raise NotCachedError
        return ready


def unsent(output: list[Records], size: int) -> list[Records]:
    """What is left of an output once `size` bytes of it are in other hands."""
    for number, each in enumerate(output):
        if size < len(each):
            if not size:
                return output[number:]
            if isinstance(each, _IN_MEMORY):
                return [memoryview(each)[size:], *output[number + 1 :]]
            return [each.behind(size), *output[number + 1 :]]
        size -= len(each)
    return []


def _leaves_directly(stored: FileSlice) -> bool:
    """Whether a slice is worth a call of its own, and known to be in the page cache."""
    size = len(stored)
    return size >= DIRECT_BYTES_MIN and stored.is_cached(min(size, DIRECT_BYTES_MAX)) is True
