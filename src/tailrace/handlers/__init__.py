"""One module per API, which begins with the contract of the API.

The module of ListOffsets is `list_offsets`, and its function `handle_list_offsets` takes the
broker's services, the request's header and the request; so it is with every API. A handler never
touches a socket; errors of the rooms below become Kafka's codes here and nowhere else.
`tailrace.broker.wiring` imports a module when its first request comes.
"""
