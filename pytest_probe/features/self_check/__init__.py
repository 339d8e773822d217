"""--probe-standard=self: a device is asked by itself where a call has no float64 reference."""
