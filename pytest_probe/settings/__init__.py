"""What a run was asked to do: read from the command line and the ini file, and checked."""
