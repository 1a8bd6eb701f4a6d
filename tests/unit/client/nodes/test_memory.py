"""Memory of large frames: when it is used again, and when not."""

from tailrace.client.nodes.connection import KEPT_BYTES_MAX, KEPT_COUNT, FrameMemory


def test_memory_without_views_is_used_again() -> None:
    """The next frame of about the same size gets the memory of one that nobody looks at."""
    memory = FrameMemory()
    first = memory.take(1000)
    memory.keep(first)
    assert memory.take(900) is first
    assert memory.take(900) is not first


def test_memory_with_a_view_is_left_alone() -> None:
    """A frame keeps its bytes while any part of it is in use, even a slice of a slice."""
    memory = FrameMemory()
    first = memory.take(1000)
    view = memoryview(first)[:900]
    part = view[10:20]
    memory.keep(first)
    del view
    assert memory.take(1000) is not first
    assert len(first) == 1000
    part.release()
    assert memory.take(1000) is first


def test_memory_is_bounded() -> None:
    """Neither many frames, nor a huge one, nor a small one in large memory keep it."""
    memory = FrameMemory()
    frames = [memory.take(1000) for _ in range(KEPT_COUNT + 1)]
    for each in frames:
        memory.keep(each)
    assert all(memory.take(1000) is not frames[0] for _ in frames)
    huge = memory.take(KEPT_BYTES_MAX + 1)
    memory.keep(huge)
    assert memory.take(KEPT_BYTES_MAX + 1) is not huge
    large = memory.take(2000)
    memory.keep(large)
    assert memory.take(1000) is not large
