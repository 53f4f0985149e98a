"""Every command of the window: menus, keys, the command palette."""
