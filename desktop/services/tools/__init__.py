"""Tools that models may call: servers of the Model Context Protocol (MCP), their configuration and calls."""
