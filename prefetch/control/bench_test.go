package control

import (
	"fmt"
	"testing"
)

func BenchmarkCallThroughTheKernel(b *testing.B) {
	c := dial(b, mount(b, newTestMux(b, MuxConfig{}, nil)))
	for _, size := range []int{10, 10_000, 1 << 20} {
		b.Run(fmt.Sprintf("answer=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				var s string
				if err := c.Call(b.Context(), "big", bigParams{size}, &s); err != nil || len(s) != size {
					b.Fatal(err)
				}
			}
		})
	}
}
