"""Hand a champion or a dataset to other systems: vLLM, a merged model, MLflow, an export folder."""
