"""Code and objects of a program's that raise what they like, when a `Fuse` says so."""

from collections.abc import Iterator
from typing import Any, cast

from tailrace.client.producer.plugins import BatchHook, ProducerInterceptor, ProducerRecord


class OwnExit(BaseException):
    """Neither an Exception nor one of Python's."""


class SilentExit(BaseException):
    """It has no text."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class Fuse:
    """Counts calls into the program's code, and raises in one of them."""

    def __init__(self, kind: type[BaseException], at: int) -> None:
        self.kind = kind
        self.calls_left = at

    def burn(self) -> None:
        """A call into the program's code."""
        self.calls_left -= 1
        if self.calls_left == 0:
            raise self.kind

    @property
    def is_over(self) -> bool:
        """Whether it has raised."""
        return self.calls_left <= 0


def evil(kind: type, fuse: Fuse, *content: Any) -> Any:
    """An object of a subclass of a built-in type all of whose methods are the program's code."""

    def method(name: str) -> Any:
        original = getattr(kind, name)

        def call(*arguments: Any, **more: Any) -> Any:
            fuse.burn()
            return original(*arguments, **more)

        return call

    own = {"__new__", "__init__", "__class__", "__getattribute__", "__del__", "__init_subclass__"}
    names = [each for each in dir(kind) if callable(getattr(kind, each)) and each not in own]
    methods = {name: method(name) for name in names if not name.startswith("__sub")}
    return type("Evil", (kind,), methods)(*content)


class Code(ProducerInterceptor, BatchHook):
    """An interceptor, a hook, a partitioner, a serializer and a callback."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.told = 0

    def on_send(self, record: Any) -> Any:
        """Take a record as an interceptor, or a batch as a hook."""
        self.fuse.burn()
        if isinstance(record, ProducerRecord) and record.headers:
            return record._replace(headers=cast("Any", list(record.headers)))
        return record

    def on_acknowledgement(self, *_: object) -> None:
        """Take the outcome of a record as an interceptor."""
        self.fuse.burn()

    def on_done(self, *_: object) -> None:
        """Take the outcome of a batch as a hook."""
        self.fuse.burn()

    def close(self) -> None:
        """End as an interceptor."""
        self.fuse.burn()

    def partition(self, *_: object, partition_count: int, available: object) -> int:  # noqa: ARG002
        """Choose a partition as a partitioner."""
        self.fuse.burn()
        return evil(int, self.fuse, partition_count - 1)  # type: ignore[no-any-return]

    def serialize(self, data: object) -> Any:
        """Make bytes as a serializer."""
        self.fuse.burn()
        return evil(bytes, self.fuse, b"%d" % len(str(type(data))))

    def delivered(self, *_: object) -> None:
        """Take a record's outcome as a callback."""
        self.told += 1
        self.fuse.burn()

    def rows(self, count: int) -> Iterator[bytes]:
        """Yield rows as the source of `send_many`."""
        for number in range(count):
            self.fuse.burn()
            yield b"row %d" % number

    def parts(self, wanted: frozenset[str]) -> dict[str, Any]:
        """Arguments of a producer."""
        parts: dict[str, Any] = {
            "interceptors": [self],
            "hooks": [self],
            "partitioner": self,
            "key_serializer": self.serialize,
            "value_serializer": self.serialize,
        }
        return {name: part for name, part in parts.items() if name in wanted}

    def arguments(self, wanted: frozenset[str]) -> dict[str, Any]:
        """Arguments of a send."""
        fuse = self.fuse
        arguments: dict[str, Any] = {
            "topic": evil(str, fuse, "t"),
            "key": evil(str, fuse, "key"),
            "value": evil(bytes, fuse, b"value"),
            "headers": evil(
                dict, fuse, {evil(str, Fuse(ValueError, 0), "h"): evil(bytes, fuse, b"content")}
            ),
            "timestamp": evil(int, fuse, 5),
            "partition": evil(int, fuse, 0),
            "on_delivery": self.delivered,
        }
        given = {name: part for name, part in arguments.items() if name in wanted}
        return {"topic": "t", "value": b"value"} | given
