"""Test runners of JavaScript, Go and Rust: their commands, their reports, and poison for their tests."""
