"""Read-only views of a project: status, explain, diff, rewards, report, query, doctor, preview."""
