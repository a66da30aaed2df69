"""Which rows a round takes: method, mix, user caps, decontamination, golden rows."""
