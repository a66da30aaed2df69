"""Systems that train on what flywheel mined: a module each with its files, and one table of all."""
