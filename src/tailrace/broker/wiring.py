"""Finds the handler of an API, and imports it when the first request comes."""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from uuid import UUID

from tailrace.handlers import SHARED
from tailrace.handlers.services import Services
from tailrace.protocol.answers import Handled, Handler, Repeats
from tailrace.protocol.apis import ApiKey


def load_handler(key: int) -> Callable[..., Handled]:
    """The function that handles a served API; imports its module, and that of its messages."""
    # By name: a start imports no API, and one that nobody asks for costs nothing (decision 24).
    name = ApiKey(key).module
    module = import_module(f"tailrace.handlers.{SHARED.get(name, name)}")
    handle: Callable[..., Handled] = getattr(module, f"handle_{name}")
    return handle


def find_handlers(services: Services) -> Callable[[int], Handler]:
    """A function that returns the handler for an API key, bound to the broker's services."""

    # One bound function for each API: this is asked for each request.
    @cache
    def find(key: int) -> Handler:
        handler = _audited(key, partial(load_handler(key), services), services)
        return handler if services.authorizer is None else _guarded(key, handler, services)

    return find


def _audited(key: int, handler: Handler, services: Services) -> Handler:
    # With the first handler: a start needs none of it (decision 24).
    from tailrace.handlers.audit import audited

    return audited(handler, key, services.audit)


def _guarded(key: int, handler: Handler, services: Services) -> Handler:
    """The handler, for requests of clients that do not have every right."""
    # Only where there is an authorizer is any of this imported (decision 24).
    from tailrace.handlers.guards import Guard, guarded
    from tailrace.handlers.special_guards import CHECKS, LONG
    from tailrace.security.needs import NEEDS

    authorizer, cluster = services.authorizer, services.cluster
    assert authorizer is not None, "asked for by the caller"

    def topic_name(topic_id: UUID) -> str | None:
        topic = cluster.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    guard = Guard(
        ApiKey(key),
        authorizer,
        NEEDS[ApiKey(key)],
        topic_name=topic_name,
        has_topic=lambda name: name in cluster.image.topics,
        creates_topics=services.auto_create_topics,
    )
    return guarded(handler, guard, checks=CHECKS, long=LONG)


def find_repeats(services: Services) -> Callable[[int], Repeats]:
    """A function that returns what remembers the requests of one connection for an API key."""

    @cache
    def connections(key: int) -> Callable[[], Repeats]:
        if key == ApiKey.PRODUCE:
            from tailrace.handlers.repeated_produce import ProduceBuffers, RepeatedProduce

            # One set of buffers for all connections: the loop handles one request at a time.
            return partial(RepeatedProduce, services, ProduceBuffers())
        if key == ApiKey.FETCH:
            from tailrace.handlers.repeated_fetch import RepeatedFetch

            return partial(RepeatedFetch, services)
        from tailrace.handlers.repeated_commit import RepeatedCommit

        return partial(RepeatedCommit, services)

    def open_repeats(key: int) -> Repeats:
        repeats = connections(key)
        if services.authorizer is None:
            return repeats()
        from tailrace.handlers.guarded_repeats import GuardedRepeats

        return GuardedRepeats(repeats, services.authorizer)

    return open_repeats
