"""--probe-cache: numbers of the reference side, kept in a folder for the next device and the next run."""
