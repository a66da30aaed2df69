"""Evaluation: suites score one policy on held-out cases, `compare` compares two policies' scores.

cases        held-out tables → anchor states with good and bad actions; the identity of an evaluation's cases
suites/      the built-in evaluators
checks/      is a proposed call, query, value or text the wanted one
compare      scores of two policies → metric rows with intervals, coverage, the report
slices       which slices a case is in
logs/        two policies compared from what they served
off_policy/  what a policy would have earned in the logs
probe        how often a policy makes a well-formed call
"""
