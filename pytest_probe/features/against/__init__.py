"""Two sides of one computation: another dump and this one (--probe-against), or a second implementation of each
call (--probe-against-call)."""
