"""--probe-relations: what must hold between calls of one API, bit for bit, without a reference and a tolerance."""
