"""One line of the diagnosis each: a function of the same name as its file takes the evidence and returns a verdict."""
