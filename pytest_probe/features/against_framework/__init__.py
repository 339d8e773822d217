"""The calls of two frameworks side by side, on equal inputs (--probe-against-framework).

It is built on the comparison of two implementations."""
