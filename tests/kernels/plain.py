"""The same modules uncompiled: an oracle for the compiled ones.

The sources are executed once more as plain Python, under the names that they import one another by,
beside the extensions, which stay what the rest of the process uses.

Plain Python has integers of any size, and refuses an index behind the end of a buffer. So the two
agree only while no result leaves int64 and no place is outside of its buffer. An index of -1 is one
of those that Python takes and the compiled kernels refuse.
"""

import operator
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tailrace
from tailrace.client.producer.queue import open_batches
from tailrace.kernels import memory, record_block

ROOT = Path(tailrace.__file__).parent.parent

ORDER = (
    *(
        f"tailrace.kernels.{name}"
        for name in (
            "memory", "batch_header", "checksums", "utf8", "records", "key_map", "cleaning",
            "commits", "encoding", "index_entries", "produces", "record_block", "rows", "runs",
            "showing",
        )
    ),
    "tailrace.client.producer.receipts",
    open_batches.__name__,
)  # fmt: skip
"""The compiled modules, each after those that it imports."""

Engine = Callable[..., Any]


def load_plain() -> dict[str, ModuleType]:
    """The modules as plain Python, by their full names."""
    compiled = {name: sys.modules[name] for name in ORDER if name in sys.modules}
    loaded = {}
    try:
        for name in ORDER:
            loader = SourceFileLoader(name, f"{ROOT / name.replace('.', '/')}.py")
            spec = spec_from_loader(name, loader)
            assert spec is not None
            sys.modules[name] = loaded[name] = module_from_spec(spec)
            loader.exec_module(loaded[name])
    finally:
        for name in ORDER:
            sys.modules.pop(name, None)
        sys.modules.update(compiled)
    return loaded


PLAIN = load_plain()


def as_plain(argument: Any) -> Any:
    """An integer as Python's own, and a buffer as a memoryview, whose items are Python's too."""
    if callable(argument) or isinstance(argument, list | tuple | None):
        return argument
    try:
        return operator.index(argument)
    except TypeError:
        return memoryview(argument)


def plain(kernel: Engine) -> Engine:
    """The plain counterpart of a compiled kernel."""
    function = getattr(PLAIN[kernel.__module__], kernel.__name__)

    def run(*arguments: Any) -> Any:
        return function(*map(as_plain, arguments))

    return run


ENGINES: dict[str, Callable[[Engine], Engine]] = {"compiled": lambda kernel: kernel, "plain": plain}
"""Both ways to run a kernel, by their names."""

both_engines = pytest.mark.parametrize("engine_name", ENGINES)

BLOCKS: dict[str, type[record_block.RecordBlock]] = {
    "compiled": record_block.RecordBlock,
    "plain": PLAIN[record_block.__name__].RecordBlock,
}
"""`RecordBlock`, likewise."""


def engine(name: str, kernel: Engine) -> Engine:
    """The kernel compiled or plain."""
    assert not memory.__file__.endswith(".py")
    return ENGINES[name](kernel)
