package intervals

import (
	"fmt"
	"testing"
)

func TestMergeOfSeparateIntervals(t *testing.T) {
	if got := fmt.Sprint(Merge([][2]int{{4, 5}, {1, 2}})); got != "[[1 2] [4 5]]" {
		t.Errorf("got %s", got)
	}
}

func TestMergeOfAnIntervalInsideAnother(t *testing.T) {
	if got := fmt.Sprint(Merge([][2]int{{1, 9}, {2, 3}})); got != "[[1 9]]" {
		t.Errorf("got %s", got)
	}
}

func TestMergeOfIntervalsThatTouch(t *testing.T) {
	if got := fmt.Sprint(Merge([][2]int{{2, 3}, {1, 2}})); got != "[[1 3]]" {
		t.Errorf("got %s", got)
	}
}
