"""The broker: every room below, put together and started."""

from tailrace.broker.background import Broker

__all__ = ["Broker"]
