"""Read models: what the API shows, in few statements and without locks. Plain rows; the API puts them into words."""
