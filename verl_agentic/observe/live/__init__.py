"""Reports on a running job: its time, its waits, its errors."""
