"""What an action is worth in a state, from every comparable attempt of the project, with its uncertainty."""
