"""`Plugins`: the user code of a producer."""

from collections.abc import Sequence

from tailrace.client.producer.hooks import BatchHook
from tailrace.client.producer.intake.interceptors import ProducerInterceptor
from tailrace.client.producer.intake.serializers import Serializer
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.user_code import call_user_code
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """User code that a producer was given: serializers, partitioner, interceptors, hooks."""

    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    partitioner: Partitioner | None = None
    interceptors: Sequence[ProducerInterceptor] = ()
    hooks: Sequence[BatchHook] = ()

    @property
    def is_plain(self) -> bool:
        """Whether a value goes into a batch without interceptors, serializer and partitioner."""
        return not self.interceptors and not self.value_serializer and self.partitioner is None

    @property
    def changes_rows(self) -> bool:
        """Whether interceptors or serializers have to be called for each row of `send_many`."""
        return bool(self.interceptors or self.key_serializer or self.value_serializer)

    def close(self) -> None:
        """Close the serializers and the partitioner that have a `close` method."""
        closable = (self.key_serializer, self.value_serializer, self.partitioner)
        for part in {id(each): each for each in closable}.values():
            call_user_code(_close, part, about=f"{type(part).__name__}.close")


def _close(part: object) -> None:
    close = None if isinstance(part, type) else getattr(part, "close", None)
    if callable(close):
        close()
