// Package intervals has small helpers for intervals.
package intervals

import "sort"

// Merge returns sorted intervals that neither overlap nor touch.
func Merge(intervals [][2]int) [][2]int {
	sorted := append([][2]int{}, intervals...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i][0] < sorted[j][0] })
	merged := [][2]int{}
	for _, interval := range sorted {
		last := len(merged) - 1
		if last >= 0 && interval[0] <= merged[last][1] {
			if interval[1] > merged[last][1] {
				merged[last][1] = interval[1]
			}
		} else {
			merged = append(merged, interval)
		}
	}
	return merged
}
