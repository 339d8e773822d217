"""A page in Markdown about a run, in --probe-out and on GitHub, and GitHub's annotations."""
