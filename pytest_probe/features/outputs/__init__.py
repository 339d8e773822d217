"""--probe-outputs: the outputs that two devices left, compared without a reference, an item a call and direction."""
