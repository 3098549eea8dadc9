"""What all stand-ins share: clock, faults, HTTP, admission, snapshots."""
