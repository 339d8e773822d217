"""Tasks of the open entries: healthy kernels, references and inputs."""
