"""What runs inside a driver process: an attempt and its queries or program, and the zygote that forks such processes."""
