"""Healthy kernels, references and inputs, for both halves of the benchmark."""
