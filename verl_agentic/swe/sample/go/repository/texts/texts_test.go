package texts

import (
	"strings"
	"testing"
)

func TestSlugJoinsWords(t *testing.T) {
	if got := Slug("Alpha, Beta!", "-", 100); got != "alpha-beta" {
		t.Errorf("got %q", got)
	}
}

func TestSlugThatIsCut(t *testing.T) {
	if got := Slug("alpha beta", "-", 6); got != "alpha" {
		t.Errorf("got %q", got)
	}
}

func TestWrapFillsLines(t *testing.T) {
	if got := strings.Join(Wrap("aaa bbb ccc", 7), "|"); got != "aaa bbb|ccc" {
		t.Errorf("got %q", got)
	}
}

func TestWrapKeepsALongWord(t *testing.T) {
	if got := strings.Join(Wrap("a bbbbbbbb c", 4), "|"); got != "a|bbbbbbbb|c" {
		t.Errorf("got %q", got)
	}
}
