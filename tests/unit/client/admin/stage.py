"""A scripted cluster whose nodes answer as a test says, and an `AsyncAdmin`, on virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tailrace.client.admin import AsyncAdmin
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.cluster import ScriptedCluster, ScriptedNode

T = TypeVar("T")

Answer = Callable[[ScriptedNode, Any], Message]


class AdminStage:
    """Nodes with the topic `t` of two partitions, led by nodes 1 and 2."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self.cluster = ScriptedCluster(outside, nodes=2)
        self.asked: list[tuple[int, Any]] = []
        """Node and request, of all requests with an answer from `on`."""

    def start(self) -> None:
        """Have the nodes listen."""
        self.cluster.start()
        self.cluster.create_topic("t", partitions=2)

    def on(self, key: ApiKey, *answers: Answer | Message) -> None:
        """Have an API answered by these in turn; the last one also answers all later requests."""
        left = list(answers)

        def answered(_: object, node: ScriptedNode, body: Any) -> Message:
            self.asked.append((node.id, body))
            answer = left.pop(0) if len(left) > 1 else left[0]
            return answer(node, body) if callable(answer) else answer

        self.cluster.answers[key] = answered

    def asked_nodes(self) -> list[int]:
        """The nodes that were asked, in order."""
        return [node for node, _ in self.asked]


def on_stage(
    scene: Callable[[AdminStage, AsyncAdmin], Awaitable[T]],
    *answers: tuple[ApiKey, Answer | Message],
    **settings: Any,
) -> tuple[T, AdminStage]:
    """The result of a coroutine that uses an admin client, and the stage after it."""
    with virtual_runtime() as outside:
        stage = AdminStage(outside)
        stage.start()
        for key, answer in answers:
            stage.on(key, answer)

        async def play() -> T:
            admin = AsyncAdmin(
                bootstrap_servers=stage.cluster.bootstrap, runtime=outside.runtime, **settings
            )
            async with admin:
                return await scene(stage, admin)

        return outside.run(play()), stage


def ask(method: str, *arguments: Any, **options: Any) -> Any:
    """A scene of one call."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        del at
        return await getattr(admin, method)(*arguments, **options)

    return scene
