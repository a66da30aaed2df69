"""Calls of model APIs as gateways, SDKs and files log them: request and response, also streamed, in each API's words.

`calls` makes the events of a call, whatever its API; a `Dialect` reads the words of one API: `chat`, `claude`,
`responses`; `gateways` has them all.
"""
