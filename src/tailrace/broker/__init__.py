"""The broker: builds and starts all parts of the rooms below."""

from tailrace.broker.background import Broker

__all__ = ["Broker"]
