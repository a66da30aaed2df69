"""Exact and robust statistics for paired comparisons: numbers in, numbers out, nothing known of records or files.

    paired      exact McNemar, mid-p, Wilson interval, rule of three
    tango       score interval of a paired difference, non-inferiority
    clusters    several cases of one task: exact sign-flip test, design effect, clustered bootstrap, paired t
    planning    sample sizes, power, least detectable difference
    multiple    Holm
    online      the LORD++ ledger over nights, the betting e-process within a canary

Conventions: `wins` are cases that only the candidate got right, `losses` those that only the baseline got right.
"Better" p-values are small when the candidate is better. Every random draw has a seed.
"""
