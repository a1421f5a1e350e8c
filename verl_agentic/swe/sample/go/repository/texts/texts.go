// Package texts has small helpers for texts.
package texts

import "strings"

// Slug returns the words of a text, in lower case, with a separator between them, in at most maxBytes bytes.
func Slug(text string, separator string, maxBytes int) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	})
	joined := strings.Join(words, separator)
	if len(joined) > maxBytes {
		joined = strings.TrimRight(joined[:maxBytes], separator)
	}
	return joined
}

// Wrap returns the lines of a text; none is longer than the width, unless a word is.
func Wrap(text string, width int) []string {
	lines := []string{}
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
