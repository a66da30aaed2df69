"""Readers of logged calls to model APIs: the APIs themselves, batch files, gateways."""
