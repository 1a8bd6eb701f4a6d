"""Send responses: buffers in memory, and slices of files that are read just before they are sent.

    output    head | slice ........................ | head | slice ....
    one send  head | first bytes of the slice, in the scratch buffer

A slice is read when the kernel has room for its bytes, so that a slow consumer of 50 MB costs only
a few objects. All connections of the loop share one scratch buffer, because the kernel has copied
it when `send` returns. For that second copy the bytes are in the processor's cache, so it is as
cheap as `sendfile` or cheaper (docs/decisions/0019, 0068).

Bytes that are not in the page cache are read on another thread. Nothing here waits.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tailrace.protocol.fields import Buffer, Records
from tailrace.runtime.files import FileSlice, without_waiting
from tailrace.runtime.network import IOV_MAX, Socket

SCRATCH_BYTES: Final = 1024 * 1024
"""Most bytes of files in one send, and in one read from a device: the default
`max.partition.fetch.bytes` of a consumer. With 256 KiB the CPU cost is 1.5 times as high."""

_IN_MEMORY: Final = (bytes, bytearray, memoryview)

DeviceRead = Callable[[FileSlice, int], Awaitable[bytes]]
"""Reads the first bytes of a slice, at most the given count, on a worker thread."""


class StoredBytesError(Exception):
    """Bytes of a response cannot be read, after its first part was sent."""

    def __init__(self, stored: FileSlice, reason: OSError) -> None:
        self.stored = stored
        self.reason = reason
        super().__init__(f"{stored.path}: {reason}")


class NotCachedError(Exception):
    """An output begins with bytes that are not in the page cache; see `from_device`."""


class ResponseSender:
    """Sends the output of connections; all connections of a loop share one."""

    def __init__(self, read_from_device: DeviceRead) -> None:
        self._read_from_device = read_from_device
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def send(self, socket: Socket, output: list[Records]) -> tuple[list[Records], bool]:
        """Send a part of a non-empty output; returns the rest, and whether the kernel has room.

        Raises:
            NotCachedError: the next bytes must be read from a device first.
            StoredBytesError: bytes of a file cannot be read.
            ConnectionError: the connection is broken.
        """
        first = output[0]
        if len(output) == 1 and isinstance(first, _IN_MEMORY):
            # Most responses are one buffer, and there is room for it.
            taken = socket.send((first,)) or 0
            return ([], True) if taken == len(first) else (unsent(output, taken), False)
        buffers = self._buffers_for(output)
        sent = socket.send(buffers)
        return unsent(output, sent or 0), sent == sum(map(len, buffers))

    async def from_device(self, output: list[Records]) -> list[Records]:
        """Read the first bytes of the output from a device; returns the output with them in memory.

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
        """The buffers at the front of an output that can be sent now."""
        ready: list[Buffer] = []
        room = self._scratch
        for each in output[:IOV_MAX]:
            if isinstance(each, _IN_MEMORY):
                ready.append(each)
                continue
            try:
                with without_waiting:
                    size = each.read_into(room)
            except BlockingIOError:
                # The page cache does not have it, and the loop waits for no device (decision 19).
                break
            except OSError as error:
                raise StoredBytesError(each, error) from error
            ready.append(room[:size])
            room = room[size:]
            # What comes next must not be sent before the rest of this slice.
            if size < len(each) or not room:
                break
        if not ready:
            raise NotCachedError
        return ready


def unsent(output: list[Records], size: int) -> list[Records]:
    """The rest of an output after its first `size` bytes."""
    for number, each in enumerate(output):
        if size < len(each):
            if not size:
                return output[number:]
            if isinstance(each, _IN_MEMORY):
                return [memoryview(each)[size:], *output[number + 1 :]]
            return [each.after(size), *output[number + 1 :]]
        size -= len(each)
    return []
