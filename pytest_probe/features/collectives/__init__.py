"""Collectives: what several ranks compute together, judged from a dump of all of them or made again in processes."""
