package config

import "strings"

// Nearest returns the candidate that word was probably meant to be, or "" when
// none is near: the only one that begins with it, or else the one with the least
// difference, of which a third of the letters may differ, and at least two may.
func Nearest(word string, candidates []string) string {
	begin := ""
	for _, c := range candidates {
		if len(word) > 1 && strings.HasPrefix(c, word) {
			if begin != "" {
				begin = ""
				break
			}
			begin = c
		}
	}
	if begin != "" {
		return begin
	}
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if bestDistance >= len(best) {
		return "" // nothing of the word is left
	}
	return best
}

// distance returns how many letters must be inserted, removed, replaced or
// swapped with their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
