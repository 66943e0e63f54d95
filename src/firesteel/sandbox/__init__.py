"""What a process that runs code of users may touch: rules (pure), Landlock that keeps them, and who gets which."""
