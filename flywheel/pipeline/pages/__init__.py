"""Collect what the HTML pages show: a round's report and the episode viewer."""
