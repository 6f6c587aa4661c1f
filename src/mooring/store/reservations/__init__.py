"""Timeslots and bookings: their requests, placements and status changes, and the tasks they displace."""
