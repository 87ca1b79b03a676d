"""Collectives: by specification, and by laws fitted on a platform's own table."""
