"""Answers on their way out: memory as it is, slices of files read just before they are sent.

    output    head | slice ........................ | head | slice ....
    one send  head | first bytes of the slice, in the scratch buffer

A slice stays a slice until the kernel has room for its bytes, so that a slow reader of 50 MB costs
a few objects. One scratch buffer serves every connection of the loop: the kernel has copied it when
`send` returns. The bytes are still in the processor's cache for that second copy, which makes it as
cheap as `sendfile` (docs/decisions/0019).

What only a device has is read on another thread. Nothing here waits.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tailrace.protocol.fields import Buffer, Records
from tailrace.runtime.files import FileSlice, without_waiting
from tailrace.runtime.network import IOV_MAX, Socket

SCRATCH_BYTES: Final = 1024 * 1024
"""Most bytes of files in one send, and in one read of a device: what a consumer asks for from a
partition by default, in one turn. With 256 KiB the same bytes cost half as much CPU again."""

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

    def send(self, socket: Socket, output: list[Records]) -> tuple[list[Records], bool]:
        """What is left of a non-empty output, and whether the kernel has room for more of it.

        Raises:
            NotCachedError: nothing could be sent before a device is asked.
            StoredBytesError: bytes of a file cannot be read.
            ConnectionError: the connection is broken.
        """
        buffers = self._buffers_for(output)
        sent = socket.send(buffers)
        return unsent(output, sent or 0), sent == sum(map(len, buffers))

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
        """The front of an output as bytes to send now."""
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
