"""The pipeline: the only place where stages meet the store. One room a job, from building tables to serving."""
