"""From votes to P(success): priors, votes, the fitted reliability of signals, calibration, delays."""
