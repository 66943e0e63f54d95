"""Code that runs inside driver processes: an attempt and its queries or program, and the zygote that forks drivers."""
