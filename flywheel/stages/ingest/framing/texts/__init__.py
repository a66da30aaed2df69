"""Chats and attempts that are text: Markdown, transcripts, prompts as a template rendered them, consoles."""
