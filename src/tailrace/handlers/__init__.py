"""One module per API: what the request means. Each opens with its contract.

A handler never touches a socket; errors of the rooms below become Kafka's codes here and nowhere
else. The handlers are put into the dispatcher's table by `tailrace.broker.wiring`.
"""
