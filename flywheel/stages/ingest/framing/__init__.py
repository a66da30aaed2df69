"""From the bytes of a content to its records: lines, documents, tables, databases, archives, servers' logs."""
