"""The race of training methods: tasks set apart for it, its rungs, and what follows from them."""
