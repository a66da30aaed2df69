"""From votes to P(success): prior and fitted reliability of signals, calibration, delays, posterior, labels."""
