"""Collectives: by specification, and by models fitted on a platform's own table."""
