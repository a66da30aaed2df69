"""From events to episodes: links, threads, transcripts, duplicates, fragments."""
