"""What the commands do. Each is a module of its own: none waits for what another needs."""
