"""What errors say: what to write, where a mistake is, and which frames are shown."""
