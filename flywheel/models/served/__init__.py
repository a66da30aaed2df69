"""Policies behind a server: vLLM, SGLang, llama.cpp, transformers, or any other that speaks OpenAI's API."""
