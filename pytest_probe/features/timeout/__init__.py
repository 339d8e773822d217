"""--probe-timeout: a case that runs too long ends its process."""
