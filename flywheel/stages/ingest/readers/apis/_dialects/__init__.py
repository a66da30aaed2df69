"""Calls of model APIs as gateways, SDKs and files log them: request and response, also streamed, in each API's words.

`calls` makes the events of a call, whatever its API; a `Dialect` says what the API calls things: `chat`, `claude`,
`responses`; `gateways` holds them all. `streams` finds the events of a streamed answer.
"""
