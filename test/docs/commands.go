// Package docs takes the commands out of the documentation that tests run as they are
// written there.
//
// A block of shell between fences is for a test if a comment stands right before it:
//
//	<!-- run -->
//	```sh
//	podnas volume list
//	```
//
// What stands after "run" is the block's kind: how test/docs runs it, "in cluster" for
// test/cluster, or "on a node: NAME" for test/e2e.
package docs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// InCluster and OnANode begin the kinds of the blocks that are not for test/docs.
const (
	InCluster = "in cluster"
	OnANode   = "on a node: "
)

// Block is some lines of shell.
type Block struct {
	Kind   string // what stands after "run"
	Line   int    // of the fence
	Script string
}

// Blocks returns the blocks of a page that are to be run, in their order.
func Blocks(file string) ([]Block, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	mark := regexp.MustCompile(`^<!-- run ?(.*) -->$`)
	var blocks []Block
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		marked := mark.FindStringSubmatch(lines[i])
		if marked == nil {
			continue
		}
		if i++; i == len(lines) || lines[i] != "```sh" {
			return nil, fmt.Errorf("%s:%d: no shell after the comment", file, i+1)
		}
		b := Block{Kind: marked[1], Line: i + 1}
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			b.Script += lines[i] + "\n"
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%s:%d: the block has no end", file, b.Line)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}
