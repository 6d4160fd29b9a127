package provisioner

import "strings"

// nearest returns the word with the smallest edit distance, if that is small.
func nearest(meant string, words []string) (string, bool) {
	meant = strings.ToLower(meant)
	best, fewest := "", max(2, len(meant)/3)+1
	for _, word := range words {
		if n := distance(meant, strings.ToLower(word)); n < fewest {
			best, fewest = word, n
		}
	}
	return best, best != ""
}

// distance is the Levenshtein distance of two words, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of the table: distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j+1]+1, row[j]+1, replaced)
		}
	}
	return row[len(b)]
}
