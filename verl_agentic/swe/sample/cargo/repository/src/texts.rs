//! Helpers for texts.

/// Returns the words of a text, in lower case, with a separator between them, in at most `max_chars` characters.
pub fn slug(text: &str, separator: char, max_chars: usize) -> String {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let joined = words.join(&separator.to_string());
    if joined.len() > max_chars {
        return joined[..max_chars].trim_end_matches(separator).to_string();
    }
    joined
}

/// Returns the lines of a text; none is longer than the width, unless a word is.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
