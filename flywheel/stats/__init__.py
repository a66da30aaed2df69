"""Exact and robust statistics: numbers in, numbers out, independent of records and files.

    paired      exact McNemar, mid-p, Wilson and Newcombe intervals
    tango       score interval of a paired difference, non-inferiority
    clusters    several cases of one task: exact sign-flip test, design effect, clustered bootstrap, paired t
    planning    sample sizes, power, least detectable difference
    multiple    Holm
    online      the LORD++ ledger over nights, the betting e-process within a canary

    label_model Dawid and Skene's EM for success or failure; families share a vote
    delays      Kaplan-Meier of late evidence, maturity, what silence so far implies
    calibration isotonic regression, cross-fitting, ECE, Brier
    missing     worst-case bounds of ratings that few give
    sampling    stratified samples with their inclusion probabilities
    transport   whether a calibration holds for each policy and intent

Conventions: `wins` are cases that only the candidate got right, `losses` those that only the baseline got right.
"Better" p-values are small when the candidate is better. Every random draw has a seed.
"""
