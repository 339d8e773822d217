"""--probe-unique: records that are the same call run once."""
