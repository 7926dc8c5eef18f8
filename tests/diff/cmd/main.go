package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"spc/tests/diff"
)

func main() {
	seed, _ := strconv.ParseUint(os.Args[1], 10, 64)
	n, _ := strconv.Atoi(os.Args[2])
	found := 0
	kinds := map[string]int{}
	start := time.Now()
	var gen time.Duration
	for i := range uint64(n) {
		t := time.Now()
		c, err := diff.Generate(seed, i)
		gen += time.Since(t)
		if err != nil {
			fmt.Println(err)
			continue
		}
		for k, v := range c.Kinds {
			kinds[k] += v
		}
		for _, f := range c.Check(context.Background()) {
			found++
			s := f.String()
			if len(s) > 300 {
				s = s[:300]
			}
			fmt.Println(i, s)
		}
	}
	for k, r := range diff.Rules {
		if r.Make != nil && kinds[k] == 0 {
			fmt.Println("never:", k)
		}
	}
	fmt.Println(found, "found in", n, time.Since(start), "generation", gen)
}
