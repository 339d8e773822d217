"""Two sides of one computation: another dump beside this one (--probe-against), or a second implementation of each
call (--probe-against-call)."""
