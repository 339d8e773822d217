"""A second implementation of each call beside the first (--probe-against-call), or a second framework
(--probe-against-framework): which differs, by what, which is wrong?

It is built on the comparison of two dumps."""
