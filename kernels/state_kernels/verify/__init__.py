"""`python -m state_kernels.verify`: checks of every kernel on the device at hand."""
