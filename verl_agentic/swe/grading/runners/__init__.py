"""Test runners of JavaScript, Go and Rust: their commands and their reports."""
