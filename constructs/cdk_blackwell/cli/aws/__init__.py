"""What every command that talks to AWS shares."""
