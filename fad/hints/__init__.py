"""What errors say: what to write for a name that fad does not have, and where a mistake is; which frames are shown."""
