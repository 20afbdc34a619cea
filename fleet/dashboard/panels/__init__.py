"""What pages say: pure functions from a scene to a document of ready text."""
