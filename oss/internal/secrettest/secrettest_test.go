package secrettest_test

import (
	"testing"

	"github.com/pailfs/pailfs/oss/internal/secrettest"
)

// counter counts errors instead of failing.
type counter struct {
	testing.TB
	errors int
}

func (*counter) Helper()                 {}
func (c *counter) Errorf(string, ...any) { c.errors++ }

type guarded struct{ secret string }

func TestASecretThatIsShownIsFound(t *testing.T) {
	for name, v := range map[string]any{
		"a text": "key opensesame", "bytes": []byte("opensesame"), "a field": guarded{"opensesame"},
	} {
		c := &counter{TB: t}
		secrettest.NotShown(c, []string{"opensesame"}, v)
		if c.errors == 0 {
			t.Errorf("the secret in %s is not found", name)
		}
	}
	secrettest.NotShown(t, []string{"opensesame"}, struct{ name string }{"harmless"})
}
