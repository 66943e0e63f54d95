"""What a process that runs user code may touch: the rules (pure), Landlock, which enforces them, and who gets which."""
