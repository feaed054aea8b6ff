"""From a file with a target and a context to a model that is kept: columns sorted, task inferred, pipeline fitted."""
