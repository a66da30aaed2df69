"""Returns of episodes and the credit of each step."""
