"""What several stages share: canonical forms, tool effects, sampling, memoised frames."""
