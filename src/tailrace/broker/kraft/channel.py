"""`ControllerChannel`: requests of this broker to the active controller, whichever that is.

    Controllers         who is the active one, as far as this broker knows; one for the broker
      ├─ ControllerChannel   heartbeats             each channel has a connection of its own:
      ├─ ControllerChannel   forwarded requests     a controller answers those of one connection
      └─ ControllerChannel   changes of the ISR     in order, so a slow one holds up those after it

    answer = await channel.ask(request, BrokerHeartbeatResponse, timeout_ms=2000)

A request is sent again, to the next controller, until one answers that it is not NOT_CONTROLLER. So
a request whose connection was lost may be carried out twice, as in Kafka
(NodeToControllerRequestThread): what is asked here is idempotent, or is refused the second time.

Not here: what an answer means, and its other errors; the askers know that.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tailrace.broker.peers import Peers
from tailrace.client.config import ClientConfig
from tailrace.client.errors import (
    AuthenticationError,
    ClosedAdminError,
    UnreachableBrokerError,
    UnsupportedBrokerError,
    error_words,
)
from tailrace.client.nodes import Backoff, Node
from tailrace.client.security import Security
from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.runtime.system import Runtime

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

FORWARD_TIMEOUT_MS: Final = 60_000
"""Most time that a forwarded request waits for a controller: a constant in Kafka too."""

_PAUSE_MS: Final = 50
"""Pause after no controller has answered; Kafka reconnects as often."""
_PAUSE_MAX_MS: Final = 1000
"""Longest such pause: an election takes a second or two, and nobody should wait much longer."""


class NoControllerError(RetriableError):
    """No controller has answered in time; the request may have been carried out."""


class ForwardRefusedError(FatalError):
    """A controller has not taken an envelope, or its answer is none to the request in it."""

    def __init__(self, code: int, *, about: str) -> None:
        self.code = code
        """The number on the wire."""
        super().__init__(f"{about}: {error_words(code)}")


class Controllers:
    """The controllers of the cluster, and which of them is the active one; for one loop.

    It logs once that none answers, and once that one does again; before the first answer too, as
    what a start does.
    """

    def __init__(self, bootstrap: Sequence[Node]) -> None:
        """`bootstrap` are those of the settings; an id below 0 is not known."""
        self.active: Node | None = None
        """The one that has answered last as the active one."""
        self.on_active: Callable[[Node], None] = lambda _: None
        """Called when another one has begun to answer, or the same one again after a loss."""
        self._bootstrap = tuple(bootstrap)
        self._leader: Node | None = None
        self._next: Node | None = None
        self.certain: Node | None = None
        """The last one that was the leader, or has answered; `next` may be a guess."""
        self.moved = asyncio.Event()
        """Set, and replaced by another, when `certain` changes."""
        self._failures = 0
        """Requests since the last answer that no active controller has answered."""
        self._is_lost = False

    @property
    def known(self) -> list[Node]:
        """The nodes that may be the active one, the likeliest first."""
        known: dict[tuple[str, int], Node] = {}
        # By address: the id of a bootstrap server is not known, and one connection is enough.
        for each in (self._leader, *self._bootstrap):
            if each is not None:
                known.setdefault((each.host, each.port), each)
        return [*known.values()]

    def tell(self, leader: Node | None) -> None:
        """Take the leader of the metadata log, who is the active controller; None: not known."""
        self._leader = leader
        if leader is not None:
            self._move(leader)

    def next(self) -> Node | None:
        """The one to ask now; None if none is known."""
        if self._next is None:
            self._next = next(iter(self.known), None)
        return self._next

    def failed(self, node: Node, reason: str) -> None:
        """Note that `node` gave no answer, or that it is not the active controller."""
        known = self.known
        # Another channel may have found the next one already.
        if self._next == node:
            position = known.index(node) + 1 if node in known else 0
            self._next = known[position % len(known)] if known else None
        self._failures += 1
        # The first attempts may be for standbys, so only when each has had its turn.
        if self._failures < len(known) or self._is_lost:
            return
        self._is_lost = True
        asked = ", ".join(map(str, known))
        if self.active is None:
            # Nothing is lost yet: whole clusters start at once, and controllers elect one first.
            logger.info("controllers_awaited asked=%s reason=%s", asked, reason)
            return
        logger.warning(
            "controllers_lost asked=%s reason=%s consequence=%s",
            asked,
            reason,
            "records are served as before; changes of topics, leaders and the ISR wait",
        )

    def answered(self, node: Node) -> None:
        """Note that `node` has answered as the active controller."""
        if node == self.active and not self._failures:
            return
        is_news = not _is_same(node, self.active) or self._is_lost
        if self._is_lost and self.active is not None:
            logger.warning("controllers_back active=%s", node)
        elif is_news:
            logger.info("controller_found active=%s", node)
        self.active = node
        self._move(node)
        self._failures, self._is_lost = 0, False
        if is_news:
            self.on_active(node)

    def _move(self, node: Node) -> None:
        self._next = node
        if not _is_same(node, self.certain):
            self.moved.set()
            self.moved = asyncio.Event()
        self.certain = node


class ControllerChannel:
    """Requests to the active controller, over one connection at a time; for one loop.

    Requests of one channel are answered in their order while the connection lasts.
    """

    def __init__(
        self,
        controllers: Controllers,
        config: ClientConfig,
        runtime: Runtime,
        *,
        security: Security | None = None,
    ) -> None:
        """`config` gives the client id, the time limit of one attempt, TLS and login.

        `security` is as of `Peers`.
        """
        self._controllers = controllers
        self._peers = Peers(config, runtime, security=security)
        self._pauses = Backoff(_PAUSE_MS, _PAUSE_MAX_MS, runtime.chance)

    async def ask(
        self,
        request: Message,
        answer: type[M],
        *,
        timeout_ms: int,
        first_version: int = 0,
        last_version: int | None = None,
    ) -> M:
        """The active controller's answer, whose error code is any but NOT_CONTROLLER.

        Raises:
            NoControllerError: there was none within `timeout_ms`; the message has who was tried.
            UnsupportedBrokerError: the active controller takes no version of the request.
            AuthenticationError: it refuses the login.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_ms / 1000
        reasons: dict[Node, str] = {}
        asked: set[Node] = set()
        rounds = 0
        while True:
            node = self._controllers.next()
            if node is None or node in asked:
                # All have had their turn: an election may be under way.
                await asyncio.sleep(min(self._pauses.pause_s(rounds), max(deadline - clock(), 0)))
                rounds += 1
                asked.clear()
            left_ms = int((deadline - clock()) * 1000)
            if left_ms <= 0:
                raise NoControllerError(
                    f"no active controller has answered {type(request).__name__} within "
                    f"{timeout_ms} ms; asked were: {_listed(reasons)}"
                )
            if node is None:
                continue
            asked.add(node)
            asking = asyncio.ensure_future(
                self._peers.ask(
                    node,
                    request,
                    answer,
                    timeout_ms=left_ms,
                    first_version=first_version,
                    last_version=last_version,
                )
            )
            try:
                found = await self._unless_moved(asking, node)
            except UnreachableBrokerError as error:
                reasons[node] = str(error)
            else:
                if found is None:
                    reasons[node] = "another controller is the active one now"
                    continue
                if not _is_of_standby(found):
                    self._controllers.answered(node)
                    return found
                reasons[node] = "it is not the active controller"
            self._controllers.failed(node, reasons[node])

    async def _unless_moved(self, asking: "asyncio.Task[M]", node: Node) -> M | None:
        """The answer of a node; None if another is the active one before it comes.

        A machine that loses its power closes no connection. Kafka's brokers wait for
        `controller.socket.timeout.ms` then, though heartbeats have found the next controller.
        """
        moving = asyncio.ensure_future(self._controllers.moved.wait())
        try:
            await asyncio.wait([asking, moving], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and not _is_same(node, self._controllers.certain):
                return None
            return await asking
        finally:
            moving.cancel()
            asking.cancel()

    async def forward(
        self,
        request_frame: bytes,
        *,
        principal: bytes | None,
        client_address: bytes,
        timeout_ms: int = FORWARD_TIMEOUT_MS,
    ) -> bytes:
        """The frame of the answer to a client's request, from the active controller (KIP-590).

        Both frames have their header and no size. `principal` is as `forwarding.principal_bytes`
        makes it; `client_address` has 4 or 16 bytes.

        Raises:
            ForwardRefusedError: the envelope was refused, or the answer is of another request.
                UNSUPPORTED_VERSION: the controller does not have the version of the request.
            NoControllerError, UnsupportedBrokerError, AuthenticationError: as `ask`.
        """
        envelope = EnvelopeRequest(
            request_data=request_frame,
            request_principal=principal,
            client_host_address=client_address,
        )
        answer = await self.ask(envelope, EnvelopeResponse, timeout_ms=timeout_ms)
        if answer.error_code != ErrorCode.NONE:
            raise ForwardRefusedError(
                answer.error_code, about=f"{self._controllers.active} refuses a forwarded request"
            )
        found = answer.response_data or b""
        # Bytes 4 to 8 of a request header and the first four of a response have it. The rest is not
        # looked at: it is the client's.
        if found[:4] != request_frame[4:8]:
            raise ForwardRefusedError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                about=f"{self._controllers.active} answers another request than the forwarded one",
            )
        return found

    def close(self) -> None:
        """Close the connection; requests that wait end with an error."""
        self._peers.close()


class Asker:
    """Requests of one kind that are sent until one succeeds; each reason is logged once.

    Some are sent twenty times a second, for as long as the controllers are away.
    """

    def __init__(
        self, channel: ControllerChannel, logger: logging.Logger, line: Callable[[], str]
    ) -> None:
        """`line` gives the format of a log line up to its reason: an event and numbers."""
        self.reason = ""
        """Why the last request had no success; empty if it had."""
        self._channel = channel
        self._logger = logger
        self._line = line

    async def ask(self, request: Message, answer: type[M], *, timeout_ms: int) -> M | None:
        """The answer of the active controller, if it is not an error; None: the reason is noted."""
        found = await self.attempt(request, answer, timeout_ms=timeout_ms)
        code = getattr(found, "error_code", ErrorCode.NONE)
        if code == ErrorCode.NONE:
            return found
        # STALE_BROKER_EPOCH too: the broker registers again, and the next request has the new one.
        self.failed(f"the controller answers {error_words(code)}")
        return None

    async def attempt(self, request: Message, answer: type[M], *, timeout_ms: int) -> M | None:
        """The answer of the active controller, with whatever error; None: there is none."""
        try:
            return await self._channel.ask(request, answer, timeout_ms=timeout_ms)
        except NoControllerError as error:
            # `Controllers` has a line for that, which all askers share.
            self.failed(str(error), level=logging.DEBUG)
        except (UnsupportedBrokerError, AuthenticationError) as error:
            # Both may pass: controllers are updated and get other passwords while we run.
            self.failed(str(error))
        except ClosedAdminError as error:
            # The broker stops, and cancels the askers next.
            raise asyncio.CancelledError from error
        return None

    def failed(self, reason: str, *, level: int = logging.WARNING) -> None:
        """Note why a request had no success."""
        if reason != self.reason:
            line = f"{self._line()} reason=%s"
            self._logger.log(level, line, reason)
        self.reason = reason

    def succeeded(self) -> None:
        """Note that a request had success: the next failure is logged, for whatever reason."""
        self.reason = ""


def _is_same(one: Node, other: Node | None) -> bool:
    """Whether two are the same by address: a bootstrap server gets its id without any change."""
    return other is not None and (one.host, one.port) == (other.host, other.port)


def _is_of_standby(answer: Message) -> bool:
    """Whether an answer is that of a controller which is not the active one."""
    # CreateTopics has its errors with the topics, which then all have this one.
    answers = (answer, *getattr(answer, "topics", ()))
    return any(getattr(each, "error_code", 0) == ErrorCode.NOT_CONTROLLER for each in answers)


def _listed(reasons: dict[Node, str]) -> str:
    # The error of a connection names its node already.
    said = (text if str(node) in text else f"{node}: {text}" for node, text in reasons.items())
    return "; ".join(said) or "none, because none is known (controller.quorum.bootstrap.servers)"
