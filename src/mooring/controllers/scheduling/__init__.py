"""The scheduling loop, estimated starts, decisions on timeslots, holds and queue metrics."""
