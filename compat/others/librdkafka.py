"""librdkafka at work: `python librdkafka.py COMMAND BOOTSTRAP ... NAME=VALUE ...`.

`compat/others.py` says what each command does.
"""

import json
import sys
import time
from base64 import urlsafe_b64decode
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

IDLE_SECONDS = 3
PATIENCE_SECONDS = 30


def main() -> None:
    """Run one command; exit code 1 and a line say what librdkafka refused."""
    given = dict(each.split("=", 1) for each in sys.argv[1:] if "=" in each)
    command, servers, *rest = (each for each in sys.argv[1:] if "=" not in each)
    client = _Client(servers, given)
    try:
        match command:
            case "produce":
                client.produce(*rest)
            case "consume":
                client.consume(*rest)
            case "exchange":
                client.exchange(*rest)
            case "trickle":
                client.trickle(*rest)
    except KafkaException as error:
        sys.exit(str(error))


class _Client:
    def __init__(self, servers: str, given: dict[str, str]) -> None:
        self._failure: KafkaError | None = None
        self._latest: KafkaError | None = None
        self._settings: dict[str, object] = {
            "bootstrap.servers": servers,
            "error_cb": self._take_error,
            "log_level": 0,
            **{name: given[name] for name in _ALIKE if name in given},
        }
        if store := given.get("ssl.truststore.location"):
            self._settings["ssl.ca.location"] = store
        if store := given.get("ssl.keystore.location"):
            self._settings |= {"ssl.certificate.location": store, "ssl.key.location": store}
        if url := given.get("sasl.oauthbearer.token.endpoint.url"):
            self._settings["oauth_cb"] = lambda _: _token(Path(url.removeprefix("file://")))

    def produce(self, topic: str, count: str) -> None:
        producer = Producer(self._settings | {"enable.idempotence": True})
        for number in range(int(count)):
            producer.produce(topic, str(number), f"key {number % 10}", on_delivery=self._take)
        self._flush(producer)

    def exchange(self, topic: str, group: str, count: str) -> None:
        self.produce(topic, count)
        self.consume(topic, group, str(PATIENCE_SECONDS))

    def trickle(self, topic: str, count: str) -> None:
        producer = Producer(self._settings | {"enable.idempotence": True})
        for number in range(int(count)):
            producer.produce(topic, str(number), on_delivery=self._take)
            self._flush(producer)
            time.sleep(0.1)

    def consume(self, topic: str, group: str, seconds: str) -> None:
        more = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(self._settings | more)
        consumer.subscribe([topic])
        wait = float(seconds)
        while (message := consumer.poll(wait)) is not None:
            wait = IDLE_SECONDS
            if (error := message.error()) is not None:
                raise KafkaException(error)
            print(message.partition(), message.offset(), message.value().decode())
            consumer.commit(message, asynchronous=False)
        consumer.close()
        self._raise()

    def _take_error(self, error: KafkaError) -> None:
        # It tries again for ever, whatever a broker says; a user has to look.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._latest = error
        if error.code() in _REFUSALS:
            self._failure = error

    def _take(self, error: KafkaError | None, _: object) -> None:
        self._failure = self._failure or error

    def _flush(self, producer: Producer) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while producer.flush(0.2) and self._failure is None:
            if time.monotonic() > deadline:
                raise KafkaException(f"not delivered in {PATIENCE_SECONDS} s: {self._latest}")
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)


_ALIKE = (
    "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password",
    "sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab",
)  # fmt: skip
_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)


def _token(path: Path) -> tuple[str, float]:
    text = path.read_text().strip()
    claims = text.split(".")[1]
    return text, json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]


if __name__ == "__main__":
    main()
