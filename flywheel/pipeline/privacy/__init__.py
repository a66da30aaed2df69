"""Find, erase and certify the removal of a user's data."""
