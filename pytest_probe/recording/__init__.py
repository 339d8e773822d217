"""Recording the API calls of a running program as a dump: the hooks of each framework, and the writer."""
