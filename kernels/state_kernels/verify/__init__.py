"""`python -m state_kernels.verify`: every kernel against the truth, on the device at hand."""
