"""Read new log lines into the store; what was refused; which reader knows a file."""
