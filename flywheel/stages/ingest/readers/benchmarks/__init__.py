"""Readers of rollouts: results of benchmarks, of evaluation tools and of training frameworks."""
