"""The lines of the diagnosis: each file has a function of its name that takes the evidence and returns a finding."""
