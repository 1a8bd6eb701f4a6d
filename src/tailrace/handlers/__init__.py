"""One module per API, which begins with the contract of the API.

A handler does not use sockets. Exceptions of the rooms below become Kafka's error codes only here.
`tailrace.broker.wiring` has the table of all handlers.
"""
