"""Where things lie in the state folder of a node."""

KEY_FILE, JOURNAL_FILE, SNAPSHOTS_FOLDER = "identity.pem", "journal.sqlite", "snapshots"

GASLOC_FOLDER = "gasloc"
"""Of what hosts that train by GASLoC exchange."""
