"""Pages: what people open in a browser to watch a loop, look up decisions and approve policies."""
