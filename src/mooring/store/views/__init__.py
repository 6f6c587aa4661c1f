"""Read models of the API: plain rows, read in few statements and without locks. The API formats them for display."""
