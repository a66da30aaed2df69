"""Off-policy estimates, from two logs or from a policy's own probabilities."""
