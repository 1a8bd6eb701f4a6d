"""The clients for threads and those for event loops have the same calls."""

import inspect
import pydoc

import pytest

from tailrace import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from tailrace.client.producer.calls import ProducerCalls

PAIRS = [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (Admin, AsyncAdmin)]


def calls_of(kind: type) -> dict[str, list[tuple[str, object, object]]]:
    """The public methods of a class, with names, kinds and defaults of their parameters."""
    return {
        name: [
            (each.name, each.kind, each.default)
            for each in inspect.signature(getattr(kind, name)).parameters.values()
        ]
        for name in dir(kind)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("blocking", "awaiting"), PAIRS)
def test_both_have_the_same_calls(blocking: type, awaiting: type) -> None:
    """Each call of one is a call of the other, with the same parameters."""
    assert calls_of(awaiting) == calls_of(blocking)


@pytest.mark.parametrize(("blocking", "awaiting"), PAIRS)
def test_both_are_made_with_the_same_arguments(blocking: type, awaiting: type) -> None:
    """The one for event loops takes a `runtime` besides, which simulations replace."""
    theirs = set(inspect.signature(awaiting).parameters)
    assert theirs == set(inspect.signature(blocking).parameters) | {"runtime"}


def test_a_call_that_waits_is_a_method_with_types_and_documentation() -> None:
    """`help()` and editors see the result of the call, and not how it is carried out."""
    signature = inspect.signature(Producer.flush)
    assert str(signature) == "(self, timeout: float | None = None) -> None"
    assert inspect.signature(AsyncProducer.flush) == signature
    assert inspect.getdoc(AsyncProducer.flush) == inspect.getdoc(Producer.flush)
    assert inspect.iscoroutinefunction(AsyncProducer.flush)
    assert not inspect.iscoroutinefunction(Producer.flush)
    assert Producer.flush.__qualname__ == f"{ProducerCalls.__name__}.flush"


def test_calls_of_the_admin_client_are_shown_as_they_are_called() -> None:
    """`help()` shows `self`, the arguments and the result; no tool finds the generator inside."""
    for name in calls_of(Admin).keys() - {"close", "statistics", "within"}:
        blocking, awaiting = getattr(Admin, name), getattr(AsyncAdmin, name)
        signature = inspect.signature(blocking)
        assert next(iter(signature.parameters)) == "self", name
        assert "Generator" not in str(signature), name
        assert not inspect.isgeneratorfunction(inspect.unwrap(blocking)), name
        assert inspect.signature(awaiting) == signature
        assert inspect.iscoroutinefunction(awaiting), name
    assert "\ncreate_topics(self, topics: " in pydoc.plain(pydoc.render_doc(Admin.create_topics))
