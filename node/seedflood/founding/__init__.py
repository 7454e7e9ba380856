"""What an operator does before hosts run: keys, a roster and settings for all of them, and invitations for more."""
