"""Shared prefixes computed once: trees of rows, packed batches, attention kernels."""
