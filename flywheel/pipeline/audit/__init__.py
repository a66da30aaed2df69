"""Sample episodes for a person to label, and record the answers."""
