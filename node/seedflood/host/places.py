"""Names of files and folders in the state folder of a node."""

KEY_FILE, JOURNAL_FILE, SNAPSHOTS_FOLDER = "identity.pem", "journal.sqlite", "snapshots"

SNAPSHOTS_KEPT = 2
"""The newest, and one in case it cannot be read."""

ROSTER_FILE = "roster.json"
"""In the state folder: the newest roster that others told us."""

FAREWELL_FILE = "farewell"
"""Our last hello in a run of a course that all have ended."""

GASLOC_FOLDER = "gasloc"
"""Holds what hosts that train by GASLoC exchange."""
