"""Create a project, list schemas, remove what nothing needs."""
