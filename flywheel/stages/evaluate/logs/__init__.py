"""Two policies compared from their served episodes."""
