"""Deployed jobs and their controllers, for the command line and for the bridge to the SDK."""
