"""The event log: keys, writer, a reader for every dialect of MLPerf logs, and the timeline."""
