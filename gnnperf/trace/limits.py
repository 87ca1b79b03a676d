"""How much of a stranger's file is read before it is refused."""

MAX_JSON_BYTES = 4 * 2**30  # one rank, unpacked
MAX_ARCHIVE_BYTES = 16 * 2**30  # all members of an archive, unpacked
MAX_ARCHIVE_MEMBERS = 20_000
MAX_TAR_HEADER_BYTES = 2**16  # of a pax or GNU header: names and times
MAX_NAME_CHARS = 16_384  # an event's name; longer ones are cut
MAX_VALUE_BYTES = 65_536  # one event's list of shapes, dtypes or values; longer ones are unknown
MAX_WINDOW_NS = 86_400 * 10**9  # no profiler runs for a day; real windows reach about a minute
MAX_RANKS = 10_000_000  # more is no world size
MAX_GROUP_BYTES = 2**20  # the ranks of one process group as text: 100,000 of them
MAX_ELEMENTS = 2**50  # of one tensor or message, and bytes of one copy: a petabyte
MAX_AXES = 64  # of one tensor, as in torch
MAX_ID = 2**62  # identifiers, and absolute times in ns: what is added to them still fits into 64 bits
MAX_RUN_EVENTS = 2**27  # saved tables, all ranks of a run; a column of one value expands from nothing
