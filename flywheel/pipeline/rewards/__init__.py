"""How far rewards can be believed: reliability, calibration, and audits by a person."""
