from .reader import read_run as read_run
