"""Where things lie in the state folder of a node."""

KEY_FILE, JOURNAL_FILE, SNAPSHOTS_FOLDER = "identity.pem", "journal.sqlite", "snapshots"
