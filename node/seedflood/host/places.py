"""Names of files and folders in the state folder of a node."""

KEY_FILE, JOURNAL_FILE, SNAPSHOTS_FOLDER = "identity.pem", "journal.sqlite", "snapshots"

GASLOC_FOLDER = "gasloc"
"""Holds what hosts that train by GASLoC exchange."""
