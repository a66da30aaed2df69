"""What is private in a text, and what takes its place."""
