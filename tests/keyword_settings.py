"""The text of modules with settings as keywords, from the tables of brokers and of clients."""

import textwrap
from collections.abc import Iterable
from typing import Final

from tailrace.broker.config import BROKER_SETTINGS
from tailrace.client.admin.config import ADMIN_SETTINGS
from tailrace.client.config import CLIENT_SETTINGS, RecordsConfig
from tailrace.client.consumer.config import CONSUMER_SETTINGS
from tailrace.client.producer.config import PRODUCER_SETTINGS
from tailrace.client.security import SAME, TOKEN_FUNCTION
from tailrace.config import Setting, settings_of

_HEAD: Final = '''\
"""Settings of clients as keywords with their types, for mypy and editors.

Written by `make docs` from the declared settings; do not edit. Programs that run import it only to
annotate their own settings. Texts, as a file has them, go into the mapping of a client instead:
`Producer({"linger.ms": "20"})`.
"""

from os import PathLike
from typing import Literal, TypedDict

from tailrace.client.nodes.oauth import TokenFunction
'''

_BROKER_HEAD: Final = '''\
"""Settings of brokers as keywords with their types, for mypy and editors.

Written by `make docs` from the declared settings; do not edit. Programs that run import it only to
annotate their own settings. Texts, names of single listeners, and Kafka's settings that have no
effect here go into the mapping: `Broker(settings={"num.partitions": "4"})`.
"""

from os import PathLike
from typing import Literal, TypedDict
'''

_PARAMETERS: Final = {"partitioner"}
"""Settings that are a parameter of the client as well, with a type of its own."""
_BROKER_PARAMETERS: Final = {"listeners", "log.dir", "log.dirs"}
"""Likewise of brokers: `listen` and `data`."""

_LIST: Final = "str | list[str] | tuple[str, ...]"
LINE_MAX: Final = 101
"""Length of a line with its end, above which ruff breaks it."""
_KINDS: Final = {"int": "int", "float": "float", "bool": "bool", "string": "str", "list": _LIST}


def broker_keywords() -> str:
    """The text of `tailrace.broker.keywords`, as ruff formats it."""
    own = {each.name: each for each in BROKER_SETTINGS if each.name not in _BROKER_PARAMETERS}
    settings = _dictionary("BrokerSettings", "TypedDict", own.items(), owner="a broker")
    return _BROKER_HEAD + settings


def client_keywords() -> str:
    """The text of `tailrace.client.keywords`, as ruff formats it."""
    records = settings_of(RecordsConfig)
    text, known = _HEAD, set(_PARAMETERS)
    for name, base, settings, owner in (
        ("ClientSettings", "TypedDict", CLIENT_SETTINGS, "every client"),
        ("AdminSettings", "ClientSettings", ADMIN_SETTINGS, "`Admin` and `AsyncAdmin`"),
        ("RecordsSettings", "ClientSettings", records, "producers and of consumers"),
        ("ProducerSettings", "RecordsSettings", PRODUCER_SETTINGS, "`Producer`, `AsyncProducer`"),
        ("ConsumerSettings", "RecordsSettings", CONSUMER_SETTINGS, "`Consumer`, `AsyncConsumer`"),
    ):
        own = {each.name: each for each in settings if each.name not in known}
        if name in {"ClientSettings", "RecordsSettings"}:
            known |= own.keys()
        own |= {other: own[ours] for other, ours in SAME.items() if ours in own}
        text += _dictionary(name, base, own.items(), owner=owner)
    return text


def _dictionary(
    name: str, base: str, settings: Iterable[tuple[str, Setting]], *, owner: str
) -> str:
    text = f'\n\nclass {name}({base}, total=False):\n    """Settings of {owner}."""\n\n'
    for key, declared in settings:
        said = textwrap.fill(f'"""`{key}`: {declared.text}"""', 96, break_on_hyphens=False)
        line = f"    {key.replace('.', '_')}: {_type(declared)}\n"
        if len(line) > LINE_MAX:
            line = line.replace("[", "[\n        ").replace("]", "\n    ]")
        text += line
        text += f"{textwrap.indent(said, '    ')}\n"
    return text


def _type(declared: Setting) -> str:
    if declared.name == TOKEN_FUNCTION:
        return "TokenFunction"
    if declared.name == "bootstrap.servers":
        return _LIST
    if declared.name.endswith((".location", ".keytab")):
        return "str | PathLike[str]"
    if declared.kind == "string" and declared.choices:
        # `acks=1` is as good as `acks="1"`.
        numbers = [each for each in declared.choices if each.lstrip("-").isdigit()]
        texts = [f'"{each}"' for each in declared.choices]
        return f"Literal[{', '.join([*texts, *numbers])}]"
    return _KINDS[declared.kind]
