package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPauseLastsAsLongAsItShouldOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if whole := For(ctx, 20*time.Second); !whole || time.Since(began) != 20*time.Second {
			t.Errorf("whole: %t, after %v", whole, time.Since(began))
		}
		if whole := For(ctx, time.Hour); whole || time.Since(began) != time.Minute {
			t.Errorf("whole: %t, after %v", whole, time.Since(began))
		}
	})
}
