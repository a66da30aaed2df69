"""Evaluation: suites score one policy on held-out cases, `compare` sets two policies' scores beside each other.

cases     held-out tables → anchor states with good and bad actions; the identity of an evaluation's cases
match     when is a proposed call the same as a logged one
suites    the built-in evaluators
compare   scores of two policies → metric rows with intervals, coverage, the report
probe     how often a policy makes a well-formed call
"""
