"""Base models, chat rendering and policies: what training and evaluation share. Torch is imported inside functions."""
